#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/batching.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {

Value broadcast(Value x, const Shape& shape, const std::vector<std::int64_t>& axes) {
  ir::require_defined("broadcast", {&x, 1});
  if (x.shape() == shape && axes == ir::iota_axes(shape.rank())) return x;
  return ir::append_op("broadcast", {x}, {{"shape", shape.vec()}, {"axes", axes}});
}

Value broadcast_to(Value x, const Shape& shape) {
  ir::require_defined("broadcast_to", {&x, 1});
  const Shape& from = x.shape();
  if (from == shape) return x;
  const int offset = shape.rank() - from.rank();
  Shape kept;  // the axes that are not repeats
  std::vector<std::int64_t> axes;
  bool fits = offset >= 0;
  for (int i = 0; fits && i < from.rank(); ++i) {
    const std::int64_t target = shape[offset + i];
    fits = from[i] == target || from[i] == 1;
    if (from[i] != target) continue;
    kept.push_back(target);
    axes.push_back(offset + i);
  }
  if (!fits)
    throw UserError("broadcast_to", "from the last axis on, extents must be equal, or 1 in the operand",
                    x.type().str() + " to " + shape.str(), "expand_dims() or reshape() it first");
  return broadcast(reshape(x, kept), shape, axes);
}

namespace ir {
namespace {

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType& x = c.operands[0];
  const Shape shape(c.attrs.integers("shape"));
  const auto& axes = c.attrs.integers("axes");
  bool fits = axes.size() == static_cast<std::size_t>(x.shape.rank());
  for (std::size_t i = 0; fits && i < axes.size(); ++i)
    fits = axes[i] >= 0 && axes[i] < shape.rank() && (i == 0 || axes[i] > axes[i - 1]) &&
           shape[static_cast<int>(axes[i])] == x.shape[static_cast<int>(i)];
  if (!fits)
    throw UserError("broadcast", "each axis of the operand must land on an axis of its extent, in order",
                    x.str() + " to " + shape.str() + " at axes " + Shape(axes).str());
  return {{x.dtype, shape}};
}

std::vector<Array> eval(const EvalContext& c) {
  const auto& axes = c.node.attrs.integers("axes");
  const auto strides = strides_of(c.operands[0].shape());
  return {rearranged(c.operands[0], c.node.types[0].shape, [&](const Index& index) {
    std::int64_t flat = 0;
    for (std::size_t i = 0; i < axes.size(); ++i) flat += index[static_cast<std::size_t>(axes[i])] * strides[i];
    return flat;
  })};
}

Sample sample(Rng& rng, DType dtype, const Shape& from, const std::vector<std::int64_t>& to,
              const std::vector<std::int64_t>& axes) {
  return {{random_array(rng, dtype, from)}, {{"shape", to}, {"axes", axes}}, {}};
}

}  // namespace

std::vector<OpDef> ops_broadcast() {
  OpDef def = movement_op("broadcast", "x repeated along new axes", OpKind::Broadcast);
  def.infer = infer;
  def.eval = eval;
  def.axes = [](const Node& node) {
    std::vector<AxisLink> links;
    for (const std::int64_t to : node.attrs.integers("axes"))
      links.push_back({0, static_cast<int>(links.size()), static_cast<int>(to)});
    return links;
  };
  def.extents = "shape";
  def.transpose = transpose_of_one([](Value ct, const TransposeContext& c) {
    return reduce_sum(ct, other_axes(ct.rank(), c.node.attrs.integers("axes")));
  });
  def.batch = batch_of_one([](Value x, const BatchContext& c) {
    const Shape shape = c.node.types[0].shape.with_inserted(0, c.size);
    return broadcast(x, shape, prepended(0, shifted(c.node.attrs.integers("axes"))));
  });
  def.samples = [](Rng& rng, DType dtype) {
    return std::vector<Sample>{
        sample(rng, dtype, {}, {}, {}),           sample(rng, dtype, {}, {3}, {}),
        sample(rng, dtype, {5}, {3, 5}, {1}),     sample(rng, dtype, {3}, {3, 5}, {0}),
        sample(rng, dtype, {1}, {1, 7, 2}, {0}),  sample(rng, dtype, {2, 3}, {4, 2, 1, 3}, {1, 3}),
        sample(rng, DType::I32, {3}, {2, 3}, {1})};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
