// Rules on elementwise ops. Every rule keeps NaN and infinities, but that numbers within a rounding of the largest may become infinite or not; the
// sign of a zero may change (x + 0 is x), and x * 0 stays, since it is NaN where x is not finite.
#include <algorithm>
#include <cmath>
#include <limits>

#include "hotloop/error.h"
#include "passes/builder.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;
using ir::ScalarOp;

// f(broadcast(a), broadcast(b), ...) with all repeats alike -> broadcast(f(a, b, ...)); scalars fit any repeat.
Value below_broadcast(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands, const Attrs& attrs) {
  const Node* pattern = nullptr;
  for (const Value& v : operands) {
    if (!is_kind(v, OpKind::Broadcast)) return {};
    if (operand(v).rank() == 0) continue;
    if (pattern == nullptr)
      pattern = v.node;
    else if (pattern->attrs.integers("axes") != v.node->attrs.integers("axes"))
      return {};
  }
  std::vector<Value> inner;
  for (const Value& v : operands) {
    Value x = operand(v);
    if (pattern != nullptr && x.rank() == 0) x = b.broadcast(x, pattern->operands[0].shape(), {});
    inner.push_back(x);
  }
  const Axes axes = pattern ? pattern->attrs.integers("axes") : Axes{};
  return b.broadcast(b.make(op, inner, attrs), operands[0].shape(), axes);
}

Value unary(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands, const Attrs& attrs) {
  const Value x = operands[0];
  switch (op.scalar) {
    case ScalarOp::Neg:
      if (is_scalar_op(x, ScalarOp::Neg)) return operand(x);
      if (is_scalar_op(x, ScalarOp::Sub)) return b.sub(operand(x, 1), operand(x, 0));
      return {};
    case ScalarOp::Not: return is_scalar_op(x, ScalarOp::Not) ? operand(x) : Value{};
    case ScalarOp::Abs:
      if (x.dtype() == DType::U32 || is_scalar_op(x, ScalarOp::Abs)) return x;
      return is_scalar_op(x, ScalarOp::Neg) ? b.make(op, {operand(x)}) : Value{};
    case ScalarOp::Cast: {
      const DType to = attrs.get<DType>("dtype");
      if (x.dtype() == to) return x;
      // Widening loses nothing, so narrowing back gives the number that was there.
      if (is_scalar_op(x, ScalarOp::Cast) && operand(x).dtype() == to && to == DType::F32 && x.dtype() == DType::F64)
        return operand(x);
      return {};
    }
    default: return {};
  }
}

Value add(Builder& b, Value x, Value y) {
  if (is_number(x, 0)) return y;
  if (is_number(y, 0)) return x;
  if (is_scalar_op(y, ScalarOp::Neg)) return b.sub(x, operand(y));
  if (is_scalar_op(x, ScalarOp::Neg)) return b.sub(y, operand(x));
  return {};
}

Value sub(Builder& b, Value x, Value y) {
  if (is_number(y, 0)) return x;
  if (is_number(x, 0)) return b.neg(y);
  if (is_scalar_op(y, ScalarOp::Neg)) return b.add(x, operand(y));
  return {};
}

// Whether (x * c) * d may be x * (c * d). Where one grows and the other shrinks, x * c may overflow or vanish where x * (c * d) does not. Two of a kind
// reach the ends of the range together; their product does not.
bool fold(double c, double d) {
  const auto grows = [](double v) { return std::abs(v) >= 1 && std::abs(v) < 1e6; };
  const auto shrinks = [](double v) { return std::abs(v) <= 1 && std::abs(v) > 1e-6; };
  return (grows(c) && grows(d)) || (shrinks(c) && shrinks(d));
}

Value mul(Builder& b, Value x, Value y) {
  if (uniform_value(x) && !uniform_value(y)) std::swap(x, y);
  if (const auto c = uniform_value(y)) {
    if (*c == 1) return x;
    if (*c == -1) return b.neg(x);
    if (*c == 0 && !is_float(x.dtype())) return y;
    if (is_float(x.dtype()) && is_scalar_op(x, ScalarOp::Mul))
      if (const auto d = uniform_value(operand(x, 1)); d && fold(*d, *c))
        return b.mul(operand(x, 0), b.mul(operand(x, 1), y));
    if (is_scalar_op(x, ScalarOp::Neg)) return b.mul(operand(x), b.neg(y));
    return {};
  }
  if (is_scalar_op(x, ScalarOp::Neg) && is_scalar_op(y, ScalarOp::Neg)) return b.mul(operand(x), operand(y));
  return {};
}

Value div(Builder& b, Value x, Value y) {
  const auto c = uniform_value(y);
  if (!c) return {};
  if (*c == 1) return x;
  if (*c == -1) return b.neg(x);
  int exponent = 0;
  // Exact for a power of two whose reciprocal is a normal number.
  if (is_float(x.dtype()) && std::abs(std::frexp(*c, &exponent)) == 0.5 && std::abs(exponent) < 100)
    return b.mul(x, b.full(1 / *c, y.type()));
  return {};
}

// x to a power in halves from -3 to 3: products and a root, within 3 ulp. -inf, which has no root, has the powers in halves that +inf has, and those of
// -0 have no sign.
Value pow(Builder& b, Value x, double exponent) {
  const double size = std::abs(exponent), whole = std::floor(size);
  if (size == 0 || size > 3 || (size != whole && size != whole + 0.5)) return {};
  const auto number = [&](double n) { return b.full(n, x.type()); };
  const auto turned = [&](Value v) { return exponent < 0 ? b.make("div", {number(1), v}) : v; };
  Value product;
  for (int i = 0; i < whole; ++i) product = product.defined() ? b.mul(product, turned(x)) : turned(x);
  if (size == whole) return product;
  const double infinity = std::numeric_limits<double>::infinity();
  const Value is_lowest = b.make("eq", {x, number(-infinity)});
  const Value root = turned(b.make("sqrt", {b.make("select", {is_lowest, number(infinity), x})}));
  return b.make("abs", {product.defined() ? b.mul(product, root) : root});
}

Value binary(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands) {
  const Value x = operands[0], y = operands[1];
  switch (op.scalar) {
    case ScalarOp::Add: return add(b, x, y);
    case ScalarOp::Sub: return sub(b, x, y);
    case ScalarOp::Mul: return mul(b, x, y);
    case ScalarOp::Div: return div(b, x, y);
    case ScalarOp::Pow:
      if (!is_float(x.dtype())) return {};
      if (const auto exponent = uniform_value(y)) return pow(b, x, *exponent);
      return {};
    case ScalarOp::Max:
    case ScalarOp::Min: return x == y ? x : Value{};
    case ScalarOp::And:
    case ScalarOp::Or: {
      if (x == y) return x;
      if (x.dtype() != DType::Bool) return {};
      const bool is_and = op.scalar == ScalarOp::And;
      for (const auto& [a, other] : {std::pair(x, y), std::pair(y, x)})
        if (const auto c = uniform_value(a)) return (*c != 0) == is_and ? other : a;
      return {};
    }
    default: return {};
  }
}

Value select(Builder& b, const std::vector<Value>& operands) {
  const Value p = operands[0], x = operands[1], y = operands[2];
  if (x == y) return x;
  if (const auto c = uniform_value(p)) return *c != 0 ? x : y;
  if (is_scalar_op(p, ScalarOp::Not)) return b.make("select", {operand(p), y, x});
  if (is_scalar_op(x, ScalarOp::Select) && operand(x) == p) return b.make("select", {p, operand(x, 1), y});
  if (is_scalar_op(y, ScalarOp::Select) && operand(y) == p) return b.make("select", {p, x, operand(y, 2)});
  return {};
}

}  // namespace

Value simplify_arithmetic(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands, const Attrs& attrs) {
  if (op.kind == OpKind::StopGradient) return operands[0];
  if (op.kind != OpKind::Elementwise) return {};
  Value v;
  if (operands.size() == 1) v = unary(b, op, operands, attrs);
  if (operands.size() == 2) v = binary(b, op, operands);
  if (op.scalar == ScalarOp::Select) v = select(b, operands);
  return v.defined() ? v : below_broadcast(b, op, operands, attrs);
}

}  // namespace hotloop::passes
