#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {

Value slice(Value x, const std::vector<std::int64_t>& start, const std::vector<std::int64_t>& stop,
            const std::vector<std::int64_t>& step) {
  ir::require_defined("slice", {&x, 1});
  const auto steps = step.empty() ? std::vector<std::int64_t>(start.size(), 1) : step;
  return ir::append_op("slice", {x}, {{"start", start}, {"stop", stop}, {"step", steps}});
}

namespace ir {
namespace {

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType& x = c.operands[0];
  const auto &start = c.attrs.integers("start"), &stop = c.attrs.integers("stop"), &step = c.attrs.integers("step");
  require_one_an_axis("slice", "start", start.size(), x);
  require_one_an_axis("slice", "stop", stop.size(), x);
  require_one_an_axis("slice", "step", step.size(), x);
  Shape shape;
  for (int i = 0; i < x.shape.rank(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (start[k] < 0 || start[k] > stop[k] || stop[k] > x.shape[i] || step[k] <= 0)
      throw UserError("slice", "on each axis 0 <= start <= stop <= extent and step > 0 must hold",
                      "axis " + std::to_string(i) + " of " + x.str() + " with start " + std::to_string(start[k]) +
                          ", stop " + std::to_string(stop[k]) + ", step " + std::to_string(step[k]),
                      step[k] < 0 ? "reverse() first" : "");
    shape.push_back((stop[k] - start[k] + step[k] - 1) / step[k]);
  }
  return {{x.dtype, shape}};
}

std::vector<Array> eval(const EvalContext& c) {
  const auto &start = c.node.attrs.integers("start"), &step = c.node.attrs.integers("step");
  const auto strides = strides_of(c.operands[0].shape());
  return {rearranged(c.operands[0], c.node.types[0].shape, [&](const Index& index) {
    std::int64_t flat = 0;
    for (std::size_t i = 0; i < index.size(); ++i) flat += (start[i] + index[i] * step[i]) * strides[i];
    return flat;
  })};
}

Value spread(Value ct, const TransposeContext& c) {
  const ValueType& x = c.node.operands[0].type();
  if (ct.shape().size() == 0) return zeros_of(x);
  const auto &start = c.node.attrs.integers("start"), &step = c.node.attrs.integers("step");
  std::vector<std::int64_t> high, interior;
  for (int i = 0; i < x.shape.rank(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    high.push_back(x.shape[i] - start[k] - ((ct.shape()[i] - 1) * step[k] + 1));
    interior.push_back(step[k] - 1);
  }
  return pad(ct, like(ct, 0), start, high, interior);
}

Sample sample(Rng& rng, DType dtype, const Shape& shape, const std::vector<std::int64_t>& start,
              const std::vector<std::int64_t>& stop, const std::vector<std::int64_t>& step) {
  return {{random_array(rng, dtype, shape)}, {{"start", start}, {"stop", stop}, {"step", step}}, {}};
}

}  // namespace

std::vector<OpDef> ops_slice() {
  OpDef def = movement_op("slice", "elements start, start + step, ... before stop, on each axis", OpKind::Slice);
  def.infer = infer;
  def.eval = eval;
  def.axes = [](const Node& node) {
    std::vector<AxisLink> links;
    link_part(links, node, 0);
    return links;
  };
  def.extents = "stop";
  def.transpose = transpose_of_one(spread);
  def.batch = batch_of_one([](Value x, const BatchContext& c) {
    const Attrs& a = c.node.attrs;
    return slice(x, prepended(0, a.integers("start")), prepended(c.size, a.integers("stop")),
                 prepended(1, a.integers("step")));
  });
  def.samples = [](Rng& rng, DType dtype) {
    return std::vector<Sample>{sample(rng, dtype, {}, {}, {}, {}),
                               sample(rng, dtype, {7}, {2}, {5}, {1}),
                               sample(rng, dtype, {7}, {1}, {7}, {3}),
                               sample(rng, dtype, {3, 5}, {0, 1}, {3, 2}, {2, 1}),
                               sample(rng, dtype, {4, 9}, {1, 0}, {4, 8}, {1, 5}),
                               sample(rng, dtype, {3}, {1}, {1}, {1}),
                               sample(rng, DType::I32, {5}, {0}, {5}, {2})};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
