#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/accumulator.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/lanes.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {

Value scatter_add(Value x, Value indices, Value updates, int axis, int lanes) {
  const Value all[] = {x, indices, updates};
  ir::require_defined("scatter_add", all);
  Attrs attrs = {{"axis", ir::checked_axis("scatter_add", axis, x.type())}};
  if (lanes > 0) attrs.set("lanes", static_cast<std::int64_t>(lanes));
  return ir::append_op("scatter_add", {x, indices, updates}, attrs);
}

namespace ir {
namespace {

int axis_of(const Node& node) { return static_cast<int>(node.attrs.integer("axis")); }

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType &x = c.operands[0], &indices = c.operands[1], &updates = c.operands[2];
  const int axis = static_cast<int>(checked_axis("scatter_add", c.attrs.integer("axis"), x));
  if (!is_integer(indices.dtype))
    throw UserError("scatter_add", "indices must be integers", types_text(c.operands), "cast(indices, DType::I32)");
  if (x.dtype != updates.dtype || x.dtype == DType::Bool)
    throw UserError("scatter_add", "x and updates must be numbers of one dtype", types_text(c.operands),
                    "cast() one of them");
  const Shape wanted = gathered_shape("scatter_add", c, axis);
  if (updates.shape != wanted)
    throw UserError("scatter_add",
                    "updates must have the shape of x with axis " + std::to_string(axis) +
                        " replaced by the axes of indices, " + wanted.str(),
                    types_text(c.operands), "broadcast_to() or reshape() the updates");
  return {x};
}

std::vector<Array> eval(const EvalContext& c) {
  const Array &x = c.operands[0], &indices = c.operands[1], &updates = c.operands[2];
  const int axis = axis_of(c.node), lanes = num_lane_axes(c.node.attrs), inner = indices.shape().rank() - lanes;
  const auto strides = strides_of(x.shape()), index_strides = strides_of(indices.shape());
  Array out(x.dtype(), x.shape());
  visit_dtype(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const auto* from = static_cast<const T*>(x.raw());
    const auto* update = static_cast<const T*>(updates.raw());
    std::vector<Accumulator<T>> sums(from, from + x.size());
    for_each_index(updates.shape(), [&](const Index& index) {
      Index at(index.begin(), index.begin() + lanes);
      at.insert(at.end(), index.begin() + axis, index.begin() + axis + inner);
      const auto wanted = index_at(indices, flat_index(at, index_strides));
      const auto value = static_cast<Accumulator<T>>(*update++);
      if (wanted < 0 || wanted >= x.shape()[axis]) return;
      Index target = index;
      target.erase(target.begin() + axis, target.begin() + axis + inner);
      target.insert(target.begin() + axis, wanted);
      auto& sum = sums[static_cast<std::size_t>(flat_index(target, strides))];
      sum = wrapping(sum, value, [](auto a, auto b) { return a + b; });
    });
    for (std::int64_t i = 0; i < x.size(); ++i)
      static_cast<T*>(out.raw())[i] = static_cast<T>(sums[static_cast<std::size_t>(i)]);
  });
  return {out};
}

std::vector<AxisLink> axes(const Node& node) {
  const int axis = axis_of(node), lanes = num_lane_axes(node.attrs), inner = node.operands[1].rank() - lanes,
            rank = node.operands[0].rank();
  std::vector<AxisLink> links{{1, -1, axis, AxisUse::Mixed}};
  link_same(links, node, 0);
  for (int i = 0; i < lanes; ++i) links.push_back({1, i, i});
  for (int i = 0; i < inner; ++i)
    for (const auto& [operand, first] : {std::pair(1, lanes), std::pair(2, axis)})
      links.push_back({operand, first + i, rank + i, AxisUse::Summed});
  for (int i = 0; i < rank; ++i)
    if (i != axis) links.push_back({2, i < axis ? i : i + inner - 1, i});
  return links;
}

std::vector<Value> jvp(const JvpContext& c) {
  const Value tx = c.tangents[0], tu = c.tangents[2];
  if (!tu.defined()) return {tx};
  return {
      scatter_add(or_zeros(tx, c.primals[0].type()), c.primals[1], tu, axis_of(c.node), num_lane_axes(c.node.attrs))};
}

std::vector<Value> transpose_rule(const TransposeContext& c) {
  const Value indices = c.operands[1], ct = c.cotangents[0];
  HOTLOOP_CHECK(indices.defined(), "scatter_add is not linear in its indices");
  if (!ct.defined()) return {{}, {}, {}};
  Value updates;
  if (!c.operands[2].defined()) {
    // What was dropped has no influence; gather would clamp its index and read some other element.
    const int axis = axis_of(c.node), lanes = num_lane_axes(c.node.attrs);
    const std::int64_t extent = ct.shape()[axis];
    if (extent == 0) return {c.operands[0].defined() ? Value{} : ct, {}, zeros_of(c.node.operands[2].type())};
    const Value taken = gather(ct, indices, axis, lanes);
    std::vector<std::int64_t> axes = iota_axes(lanes);
    for (int i = lanes; i < indices.rank(); ++i) axes.push_back(axis + i - lanes);
    const Value kept = broadcast(indices_in_range(indices, extent), taken.shape(), axes);
    updates = select(kept, taken, like(taken, 0));
  }
  return {c.operands[0].defined() ? Value{} : ct, {}, updates};
}

std::vector<Batched> batch(const BatchContext& c) {
  const Value x = with_batch(c.operands[0], c.size), updates = with_batch(c.operands[2], c.size);
  const int axis = axis_of(c.node), lanes = num_lane_axes(c.node.attrs);
  if (lanes == 0 && !c.operands[1].batched) return {{scatter_add(x, c.operands[1].value, updates, axis + 1), true}};
  return {{scatter_add(x, with_batch(c.operands[1], c.size), updates, axis + 1, lanes + 1), true}};
}

}  // namespace

std::vector<OpDef> ops_scatter_add() {
  OpDef def;
  def.name = "scatter_add";
  def.summary = "x with updates added at indices along an axis, the adjoint of gather; out of range is dropped";
  def.kind = OpKind::ScatterAdd;
  def.num_operands = 3;
  def.infer = infer;
  def.eval = eval;
  def.axes = axes;
  def.jvp = jvp;
  def.transpose = transpose_rule;
  def.batch = batch;
  def.flops = [](const Node& node) { return static_cast<double>(node.operands[2].shape().size()); };
  def.samples = [](Rng& rng, DType dtype) {
    const auto sample = [&](DType d, const Shape& x, const Shape& indices, const Shape& updates, std::int64_t axis) {
      const auto extent = static_cast<double>(x[static_cast<int>(axis)]);
      // Some indices out of range, some equal.
      return Sample{
          {random_array(rng, d, x), random_array(rng, DType::I32, indices, -1, extent), random_array(rng, d, updates)},
          {{"axis", axis}},
          {}};
    };
    const auto in_lanes = [&](std::int64_t lanes, const Shape& x, const Shape& indices, const Shape& updates,
                              std::int64_t axis) {
      Sample s = sample(dtype, x, indices, updates, axis);
      s.attrs.set("lanes", lanes);
      return s;
    };
    return std::vector<Sample>{sample(dtype, {5}, {}, {}, 0),
                               in_lanes(1, {3, 5}, {3, 2}, {3, 2}, 1),
                               in_lanes(1, {2, 3, 4}, {2}, {2, 3}, 2),
                               in_lanes(2, {2, 3, 4, 2}, {2, 3, 5}, {2, 3, 5, 2}, 2),
                               sample(dtype, {5}, {7}, {7}, 0),
                               sample(dtype, {1}, {3}, {3}, 0),
                               sample(dtype, {3, 5}, {4}, {3, 4}, 1),
                               sample(dtype, {3, 5}, {2, 3}, {2, 3, 5}, 0),
                               sample(dtype, {2, 3, 5}, {2, 2}, {2, 2, 2, 5}, 1),
                               sample(DType::I32, {4}, {3}, {3}, 0)};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
