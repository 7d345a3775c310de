// Rules on reductions and dots.
#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "core/index.h"
#include "ops/rules/arguments.h"
#include "passes/builder.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;
using ir::ScalarOp;

bool contains(const Axes& axes, std::int64_t axis) { return std::ranges::find(axes, axis) != axes.end(); }

Shape without_axes(const Shape& shape, const Axes& axes) {
  Shape result;
  for (int i = 0; i < shape.rank(); ++i)
    if (!contains(axes, i)) result.push_back(shape[i]);
  return result;
}

// A count as a number that sums wrap around as they do, of integers.
Value number_of(Builder& b, std::int64_t count, const ValueType& type) {
  switch (type.dtype) {
    case DType::I32: return b.full(static_cast<std::int32_t>(count), type);
    case DType::U32: return b.full(static_cast<std::uint32_t>(count), type);
    case DType::I64: {
      const Value one = b.make("constant", {}, {{"value", Array::scalar(count)}});  // a double would round it
      return b.broadcast(one, type.shape, {});
    }
    default: return b.full(static_cast<double>(count), type);
  }
}

// The reduction of repeats: of n equal values the sum is n of them, and the maximum one.
Value reduce_of_broadcast(Builder& b, const ir::OpDef& op, Value x, const Axes& axes) {
  const bool is_sum = op.name == "reduce_sum";
  if (!is_sum && op.name != "reduce_max" && op.name != "reduce_min") return {};
  const Axes& placed = x.node->attrs.integers("axes");
  std::int64_t count = 1;
  Axes kept_axes, inner_reduced, outer_placed;
  for (int i = 0; i < x.rank(); ++i)
    if (!contains(axes, i)) kept_axes.push_back(i);
  bool any = false;
  for (std::int64_t axis : axes) {
    const auto place = std::ranges::find(placed, axis);
    if (place != placed.end()) {
      inner_reduced.push_back(place - placed.begin());
      continue;
    }
    const std::int64_t extent = x.shape()[static_cast<int>(axis)];
    if (extent == 0 || b.options().may_vary(extent)) return {};
    count *= extent;
    any = true;
  }
  if (!any) return {};
  for (std::int64_t axis : placed)
    if (!contains(axes, axis)) outer_placed.push_back(std::ranges::find(kept_axes, axis) - kept_axes.begin());
  Value inner = b.make(op, {operand(x)}, {{"axes", inner_reduced}});
  if (is_sum) inner = b.mul(inner, number_of(b, count, inner.type()));
  return b.broadcast(inner, without_axes(x.shape(), axes), outer_placed);
}

Value reduce(Builder& b, const ir::OpDef& op, Value x, const Axes& axes) {
  if (axes.empty()) return x;
  const auto is_unit = [&](std::int64_t axis) { return x.shape()[static_cast<int>(axis)] == 1; };
  if (std::ranges::all_of(axes, is_unit)) return b.reshape(x, without_axes(x.shape(), axes));
  if (is_kind(x, OpKind::Broadcast)) return reduce_of_broadcast(b, op, x, axes);
  if (is_kind(x, OpKind::Reduce) && x.node->op == &op) {
    const Axes& inner = x.node->attrs.integers("axes");
    const Axes kept = ir::other_axes(operand(x).rank(), inner);
    Axes both = inner;
    for (std::int64_t axis : axes) both.push_back(kept[at(axis)]);
    std::ranges::sort(both);
    return b.make(op, {operand(x)}, {{"axes", both}});
  }
  if (is_kind(x, OpKind::Transpose)) {
    const Axes& permutation = x.node->attrs.integers("permutation");
    Axes kept, inner;
    for (int i = 0; i < x.rank(); ++i) (contains(axes, i) ? inner : kept).push_back(permutation[at(i)]);
    std::ranges::sort(inner);
    return std::ranges::is_sorted(kept) ? b.make(op, {operand(x)}, {{"axes", inner}}) : Value{};
  }
  if (op.name != "reduce_sum") return {};
  if (is_scalar_op(x, ScalarOp::Neg)) return b.neg(b.reduce_sum(operand(x), axes));
  if (is_kind(x, OpKind::Pad)) {
    const auto axis = padded_axis(*x.node);
    return axis && contains(axes, *axis) ? b.reduce_sum(operand(x), axes) : Value{};
  }
  return {};
}

// One side of a dot.
struct Side {
  Value value;
  Axes contract, batch;
  bool is_free(std::int64_t axis) const { return !contains(contract, axis) && !contains(batch, axis); }
};

// The side without its transpose, if the order of its free axes survives.
bool drop_transpose(Side& side) {
  if (!is_kind(side.value, OpKind::Transpose)) return false;
  const Axes& permutation = side.value.node->attrs.integers("permutation");
  Axes free;
  for (int i = 0; i < side.value.rank(); ++i)
    if (side.is_free(i)) free.push_back(permutation[at(i)]);
  if (!std::ranges::is_sorted(free)) return false;
  for (auto* axes : {&side.contract, &side.batch})
    for (std::int64_t& axis : *axes) axis = permutation[at(axis)];
  side.value = operand(side.value);
  return true;
}

// dot(repeat of one scalar s, x) = sum of s * x. The sum of x alone might be infinite where that is not.
Value dot_of_uniform(Builder& b, const Side& uniform, const Side& other, const Shape& shape, bool uniform_is_lhs) {
  if (!is_kind(uniform.value, OpKind::Broadcast) || operand(uniform.value).rank() != 0) return {};
  Axes reduced = other.contract;
  std::ranges::sort(reduced);
  const Value sum =
      b.reduce_sum(b.mul(other.value, b.broadcast(operand(uniform.value), other.value.shape(), {})), reduced);
  // Where the axes that are left are in the result: batch, free of lhs, free of rhs.
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  const auto num_batch = static_cast<std::int64_t>(other.batch.size());
  std::int64_t free = uniform_is_lhs ? shape.rank() - sum.rank() + num_batch : num_batch;
  for (int i = 0; i < other.value.rank(); ++i) {
    if (contains(reduced, i)) continue;
    const auto batch = std::ranges::find(other.batch, i);
    const std::int64_t place = batch != other.batch.end() ? batch - other.batch.begin() : free++;
    places.emplace_back(place, static_cast<std::int64_t>(places.size()));
  }
  std::ranges::sort(places);
  Axes order, axes;
  for (const auto& [place, axis] : places) {
    axes.push_back(place);
    order.push_back(axis);
  }
  return b.broadcast(b.transpose(sum, order), shape, axes);
}

// The side without repeats along free axes, if it has any: dot(repeat of x, y) is a repeat of dot(x, y). Gives the free axes that remain
// of the old ones too.
std::optional<Side> drop_repeats(Builder& b, const Side& side, Axes& kept_free) {
  if (!is_kind(side.value, OpKind::Broadcast)) return std::nullopt;
  const Axes& placed = side.value.node->attrs.integers("axes");
  Axes kept;
  for (int i = 0; i < side.value.rank(); ++i) {
    const bool repeats = side.is_free(i) && !contains(placed, i) && side.value.shape()[i] > 1;
    if (!repeats) kept.push_back(i);
    if (side.is_free(i) && !repeats) kept_free.push_back(i);
  }
  if (static_cast<int>(kept.size()) == side.value.rank()) return std::nullopt;
  const auto position = [&](std::int64_t axis) { return std::ranges::find(kept, axis) - kept.begin(); };
  Shape shape;
  for (const std::int64_t axis : kept) shape.push_back(side.value.shape()[static_cast<int>(axis)]);
  Axes to;
  for (const std::int64_t axis : placed) to.push_back(position(axis));
  Side smaller{b.broadcast(operand(side.value), shape, to), side.contract, side.batch};
  for (auto* axes : {&smaller.contract, &smaller.batch})
    for (std::int64_t& axis : *axes) axis = position(axis);
  return smaller;
}

Value dot_of_repeats(Builder& b, const Side& lhs, const Side& rhs, const Shape& shape) {
  Axes lhs_kept, rhs_kept;
  const auto small_lhs = drop_repeats(b, lhs, lhs_kept), small_rhs = drop_repeats(b, rhs, rhs_kept);
  if (!small_lhs && !small_rhs) return {};
  // Axes of the result: batch, free of lhs, free of rhs.
  Axes places;
  for (std::size_t i = 0; i < lhs.batch.size(); ++i) places.push_back(static_cast<std::int64_t>(i));
  auto next = static_cast<std::int64_t>(lhs.batch.size());
  for (const auto& [side, smaller, kept] :
       {std::tuple(&lhs, &small_lhs, &lhs_kept), std::tuple(&rhs, &small_rhs, &rhs_kept)})
    for (int i = 0; i < side->value.rank(); ++i) {
      if (!side->is_free(i)) continue;
      if (!*smaller || contains(*kept, i)) places.push_back(next);
      ++next;
    }
  const Side &l = small_lhs ? *small_lhs : lhs, &r = small_rhs ? *small_rhs : rhs;
  return b.broadcast(b.dot(l.value, r.value, l.contract, r.contract, l.batch, r.batch), shape, places);
}

// dot(a * b, x) = a * dot(b, x) where a is the same along the contracted axes: then b has fewer numbers than the product.
Value dot_of_product(Builder& b, const Side& side, const Side& other, const Shape& shape, bool product_is_lhs) {
  const auto product = product_of_repeats(side.value);
  const int which = product ? leaves_dot(*product, side.contract, side.batch) : -1;
  if (which < 0) return {};
  const Value out = which == 0 ? product->first : product->second;
  const Value in = which == 0 ? product->second : product->first;
  const Value rest = product_is_lhs ? b.dot(in, other.value, side.contract, other.contract, side.batch, other.batch)
                                    : b.dot(other.value, in, other.contract, side.contract, other.batch, side.batch);
  // Where the axes of this side are in the result.
  std::vector<std::int64_t> place(at(side.value.rank()), -1);
  for (std::size_t i = 0; i < side.batch.size(); ++i) place[at(side.batch[i])] = static_cast<std::int64_t>(i);
  auto next = static_cast<std::int64_t>(side.batch.size());
  if (!product_is_lhs) next = shape.rank();
  std::int64_t num_free = 0;
  for (int i = 0; i < side.value.rank(); ++i) num_free += side.is_free(i);
  if (!product_is_lhs) next -= num_free;
  for (int i = 0; i < side.value.rank(); ++i)
    if (side.is_free(i)) place[at(i)] = next++;
  // A broadcast keeps the order of axes, which a batch axis need not have here.
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (const std::int64_t axis : out.node->attrs.integers("axes"))
    places.emplace_back(place[at(axis)], static_cast<std::int64_t>(places.size()));
  std::ranges::sort(places);
  Axes axes, order;
  for (const auto& [to, from] : places) {
    axes.push_back(to);
    order.push_back(from);
  }
  return b.mul(rest, b.broadcast(b.transpose(operand(out), order), shape, axes));
}

// Whether a value is a unit matrix, written as iota == iota (the unit tangents of forward mode are).
bool is_unit_matrix(Value v) {
  if (v.rank() != 2 || v.shape()[0] != v.shape()[1] || v.node->op->name != "cast") return false;
  const Value same = operand(v);
  if (!is_scalar_op(same, ScalarOp::Eq)) return false;
  const Value a = operand(same, 0), c = operand(same, 1);
  return is_kind(a, OpKind::Iota) && is_kind(c, OpKind::Iota) &&
         a.node->attrs.integer("axis") != c.node->attrs.integer("axis");
}

// dot(I, x) is x, its contracted axis where the free one of I was.
Value dot_of_unit(Builder& b, const Side& unit, const Side& other, bool unit_is_lhs) {
  if (!unit.batch.empty() || unit.contract.size() != 1 || !is_unit_matrix(unit.value)) return {};
  Axes permutation;
  for (int i = 0; i < other.value.rank(); ++i)
    if (i != other.contract[0]) permutation.push_back(i);
  permutation.insert(unit_is_lhs ? permutation.begin() : permutation.end(), other.contract[0]);
  return b.transpose(other.value, permutation);
}

Value dot(Builder& b, const std::vector<Value>& operands, const Attrs& attrs) {
  Side lhs{operands[0], attrs.integers("lhs_contract"), attrs.integers("lhs_batch")};
  Side rhs{operands[1], attrs.integers("rhs_contract"), attrs.integers("rhs_batch")};
  bool changed = drop_transpose(lhs);
  changed = drop_transpose(rhs) || changed;
  if (!std::ranges::is_sorted(lhs.contract)) {
    std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
    for (std::size_t i = 0; i < lhs.contract.size(); ++i) pairs.emplace_back(lhs.contract[i], rhs.contract[i]);
    std::ranges::sort(pairs);
    for (std::size_t i = 0; i < pairs.size(); ++i) std::tie(lhs.contract[i], rhs.contract[i]) = pairs[i];
    changed = true;
  }
  if (changed) return b.dot(lhs.value, rhs.value, lhs.contract, rhs.contract, lhs.batch, rhs.batch);
  // A product with zeros stays. It has its place in the order of a sum of products, and where a sequence has zeros, before its first
  // step, a stream has a state: what they give is the same to the bit.
  if (uniform_value(lhs.value) == 0.0 || uniform_value(rhs.value) == 0.0) return {};
  Shape shape;
  for (std::int64_t axis : lhs.batch) shape.push_back(lhs.value.shape()[static_cast<int>(axis)]);
  for (const Side* side : {&lhs, &rhs})
    for (int i = 0; i < side->value.rank(); ++i)
      if (side->is_free(i)) shape.push_back(side->value.shape()[i]);
  if (Value v = dot_of_unit(b, lhs, rhs, true); v.defined()) return v;
  if (Value v = dot_of_unit(b, rhs, lhs, false); v.defined()) return v;
  if (Value v = dot_of_product(b, lhs, rhs, shape, true); v.defined()) return v;
  if (Value v = dot_of_product(b, rhs, lhs, shape, false); v.defined()) return v;
  if (Value v = dot_of_repeats(b, lhs, rhs, shape); v.defined()) return v;
  if (Value v = dot_of_uniform(b, lhs, rhs, shape, true); v.defined()) return v;
  return dot_of_uniform(b, rhs, lhs, shape, false);
}

}  // namespace

std::optional<ProductOfRepeats> product_of_repeats(Value v) {
  if (!is_scalar_op(v, ScalarOp::Mul) || !is_float(v.dtype())) return std::nullopt;
  const ProductOfRepeats product{operand(v, 0), operand(v, 1)};
  if (!is_kind(product.first, OpKind::Broadcast) || !is_kind(product.second, OpKind::Broadcast)) return std::nullopt;
  return product;
}

int leaves_dot(const ProductOfRepeats& product, const Axes& contract, const Axes& batch) {
  const Value factors[] = {product.first, product.second};
  for (int i = 0; i < 2; ++i) {
    const Axes &out = factors[i].node->attrs.integers("axes"), &in = factors[1 - i].node->attrs.integers("axes");
    const bool uncontracted = std::ranges::none_of(contract, [&](std::int64_t axis) { return contains(out, axis); });
    bool repeats = false;
    for (int axis = 0; axis < factors[i].rank(); ++axis)
      repeats = repeats || (!contains(contract, axis) && !contains(batch, axis) && !contains(in, axis) &&
                            factors[i].shape()[axis] > 1);
    if (uncontracted && repeats && is_of_units(factors[i])) return i;
  }
  return -1;
}

Value simplify_contraction(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands, const Attrs& attrs) {
  if (op.kind == OpKind::Reduce) return reduce(b, op, operands[0], attrs.integers("axes"));
  if (op.kind == OpKind::Dot) return dot(b, operands, attrs);
  return {};
}

}  // namespace hotloop::passes
