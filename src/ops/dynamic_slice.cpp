#include <algorithm>

#include "core/convert.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"
#include "ops/rules/starts.h"
#include "ops/rules/walk.h"

namespace hotloop {

Value dynamic_slice(Value x, std::span<const Value> starts, const std::vector<std::int64_t>& sizes) {
  std::vector<Value> operands = {x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return ir::append_op("dynamic_slice", operands, {{"sizes", sizes}});
}

namespace ir {
namespace {

std::vector<ValueType> infer(const InferContext& c) {
  const auto& sizes = c.attrs.integers("sizes");
  check_starts(c, 1, sizes);
  return {{c.operands[0].dtype, Shape(sizes)}};
}

std::vector<Array> eval(const EvalContext& c) {
  const Array& x = c.operands[0];
  const StartsAt starts(c, 1, x.shape(), c.node.attrs.integers("sizes"));
  const auto strides = strides_of(x.shape());
  return {rearranged(x, c.node.types[0].shape, [&](Index index) {
    starts.move(index);
    return flat_index(index, strides);
  })};
}

std::vector<Value> jvp(const JvpContext& c) {
  if (!c.tangents[0].defined()) return {{}};
  return {dynamic_slice(c.tangents[0], c.primals.subspan(1), c.node.attrs.integers("sizes"))};
}

std::vector<Value> transpose_rule(const TransposeContext& c) {
  std::vector<Value> result(c.operands.size());
  if (c.cotangents[0].defined() && !c.operands[0].defined())
    result[0] = dynamic_update(zeros_of(c.node.operands[0].type()), c.cotangents[0], c.operands.subspan(1));
  return result;
}

std::vector<Batched> batch(const BatchContext& c) {
  const auto [x, x_batched] = c.operands[0];
  const LaneStarts lanes = lane_starts(c, 1);
  const auto& sizes = c.node.attrs.integers("sizes");
  const Shape& shape = c.node.operands[0].shape();
  const int moving = num_moving_axes(shape, sizes);
  if (lanes.differ && moving == 0) return {{x, x_batched}};
  if (!lanes.differ || x_batched || num_start_lanes(c.node, 1) > 0)
    return {{dynamic_slice(with_batch(c.operands[0], c.size), lanes.starts, prepended(c.size, sizes)), true}};
  // Each lane starts elsewhere in what all share: a gather from the moving axes as one.
  Shape places({c.size}), rest;
  std::int64_t elements = 1;
  for (int i = 0; i < moving; ++i) places.push_back(sizes[static_cast<std::size_t>(i)]), elements *= shape[i];
  for (int i = moving; i < shape.rank(); ++i) rest.push_back(shape[i]);
  const auto strides = strides_of(Shape(std::span(shape.dims()).first(static_cast<std::size_t>(moving))));
  const DType dtype = holds(DType::I32, elements) ? DType::I32 : DType::I64;
  Value flat;
  for (int i = 0; i < moving; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const Value first = cast(clamped_start(lanes.operands[k], shape[i], sizes[k], places), dtype);
    const Value along = first + iota(dtype, places, i + 1);
    flat = add_or_either(flat, along * static_cast<double>(strides[k]));
  }
  return {{gather(reshape(x, rest.with_inserted(0, elements)), flat, 0), true}};
}

}  // namespace

std::vector<OpDef> ops_dynamic_slice() {
  OpDef def = movement_op("dynamic_slice", "part of x of fixed sizes at run-time starts, moved so that it fits",
                          OpKind::DynamicSlice, -1);
  def.infer = infer;
  def.eval = eval;
  def.axes = [](const Node& node) {
    std::vector<AxisLink> links;
    link_part(links, node, 0);
    for (int k = 1; k < static_cast<int>(node.operands.size()); ++k) link_same(links, node, k);
    return links;
  };
  def.extents = "sizes";
  def.jvp = jvp;
  def.transpose = transpose_rule;
  def.batch = batch;
  def.samples = [](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (const SamplePart& p : sample_parts(dtype)) {
      samples.push_back({{random_array(rng, p.dtype, p.whole)}, {{"sizes", p.part.vec()}}, {}});
      append_sample_starts(rng, p, samples.back().operands);
    }
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
