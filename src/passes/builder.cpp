#include "passes/builder.h"

#include <algorithm>
#include <cmath>

#include "core/convert.h"
#include "hotloop/error.h"

namespace hotloop::passes {

Value Builder::make(std::string_view op, std::vector<Value> operands, Attrs attrs) {
  return make(ir::op(op), std::move(operands), std::move(attrs));
}

Value Builder::make(const ir::OpDef& op, std::vector<Value> operands, Attrs attrs) {
  constexpr int max_depth = 64;  // rules make things smaller; this bounds a pair that would undo each other
  if (depth_ < max_depth) {
    ++depth_;
    Value v = simplify_arithmetic(*this, op, operands, attrs);
    if (!v.defined()) v = simplify_movement(*this, op, operands, attrs);
    if (!v.defined()) v = simplify_contraction(*this, op, operands, attrs);
    if (!v.defined()) v = simplify_places(*this, op, operands, attrs);
    --depth_;
    if (v.defined()) {
      ++num_rewrites_;
      return v;
    }
  }
  return graph_.append(op, std::move(operands), std::move(attrs), {}, generation_)->result();
}

Value Builder::scalar(double value, DType dtype) {
  static const ir::OpDef& constant = ir::op("constant");
  return graph_.append(constant, {}, {{"value", filled(dtype, Shape{}, value)}}, {}, generation_)->result();
}

Value Builder::narrow(Value x, int axis, std::int64_t start, std::int64_t stop) {
  Axes from = zeros(x.rank()), to = x.shape().vec();
  from[static_cast<std::size_t>(axis)] = start;
  to[static_cast<std::size_t>(axis)] = stop;
  return slice(x, from, to, ones(x.rank()));
}

Axes zeros(int n) { return Axes(static_cast<std::size_t>(n), 0); }
Axes ones(int n) { return Axes(static_cast<std::size_t>(n), 1); }

std::optional<int> sliced_axis(const Node& slice) {
  const Axes &start = slice.attrs.integers("start"), &step = slice.attrs.integers("step");
  int axis = 0;
  bool found = false;
  for (int i = 0; i < slice.types[0].shape.rank(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (step[k] != 1) return std::nullopt;
    if (start[k] == 0 && slice.types[0].shape[i] == slice.operands[0].shape()[i]) continue;
    if (found) return std::nullopt;
    axis = i;
    found = true;
  }
  if (slice.types[0].shape.rank() == 0) return std::nullopt;
  return axis;
}

std::optional<int> padded_axis(const Node& pad) {
  const Axes &low = pad.attrs.integers("low"), &high = pad.attrs.integers("high"),
             &interior = pad.attrs.integers("interior");
  if (pad.types[0].shape.rank() == 0 || uniform_value(pad.operands[1]) != 0.0) return std::nullopt;
  int axis = 0;
  bool found = false;
  for (int i = 0; i < pad.types[0].shape.rank(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (interior[k] != 0) return std::nullopt;
    if (low[k] == 0 && high[k] == 0) continue;
    if (found) return std::nullopt;
    axis = i;
    found = true;
  }
  return axis;
}

bool is_of_units(Value v) {
  using enum ir::OpKind;
  while (is_kind(v, Broadcast) || is_kind(v, Reshape) || is_kind(v, Transpose) || is_kind(v, Slice)) v = operand(v);
  const auto number = uniform_value(v);
  if (number) return *number == 0 || std::abs(*number) == 1;
  return is_named(v, "cast") && operand(v).dtype() == DType::Bool;
}

bool keeps_grouping(const Node& add) {
  // Every addition asks: what is further back than so many alternatives and views counts as a difference.
  constexpr std::size_t most_seen = 32;
  std::vector<Value> seen = add.operands;
  const auto see = [&](Value v) {
    if (std::ranges::find(seen, v) == seen.end()) seen.push_back(v);
  };
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const Value v = seen[i];
    if (i == most_seen || is_scalar_op(v, ir::ScalarOp::Sub) || is_scalar_op(v, ir::ScalarOp::Neg)) return true;
    using enum ir::OpKind;
    if (is_scalar_op(v, ir::ScalarOp::Select)) {
      see(operand(v, 1));
      see(operand(v, 2));
    } else if (is_kind(v, Slice) || is_kind(v, Reshape) || is_kind(v, Transpose) || is_kind(v, Broadcast)) {
      see(operand(v));
    }
  }
  return false;
}

}  // namespace hotloop::passes
