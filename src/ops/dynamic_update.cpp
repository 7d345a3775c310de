#include <algorithm>

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

Value dynamic_update(Value x, Value update, std::span<const Value> starts) {
  std::vector<Value> operands = {x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return ir::append_op("dynamic_update", operands);
}

namespace ir {
namespace {

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType &x = c.operands[0], &update = c.operands[1];
  if (x.dtype != update.dtype || x.shape.rank() != update.shape.rank())
    throw UserError("dynamic_update", "x and the update must have one dtype and as many axes",
                    types_text(c.operands.first(2)), "cast() or reshape() the update");
  check_starts(c, 2, update.shape.dims());
  return {x};
}

std::vector<Array> eval(const EvalContext& c) {
  const Array& update = c.operands[1];
  Array out = c.operands[0].clone();
  const StartsAt starts(c, 2, out.shape(), update.shape().dims());
  const auto strides = strides_of(out.shape());
  const std::size_t width = size_of(out.dtype());
  const auto* from = static_cast<const std::byte*>(update.raw());
  for_each_index(update.shape(), [&](Index index) {
    starts.move(index);
    std::memcpy(static_cast<std::byte*>(out.raw()) + static_cast<std::size_t>(flat_index(index, strides)) * width, from,
                width);
    from += width;
  });
  return {out};
}

std::vector<Value> jvp(const JvpContext& c) {
  if (!c.tangents[0].defined() && !c.tangents[1].defined()) return {{}};
  return {dynamic_update(or_zeros(c.tangents[0], c.primals[0].type()), or_zeros(c.tangents[1], c.primals[1].type()),
                         c.primals.subspan(2))};
}

std::vector<Value> transpose_rule(const TransposeContext& c) {
  std::vector<Value> result(c.operands.size());
  const Value ct = c.cotangents[0];
  if (!ct.defined()) return result;
  const auto starts = c.operands.subspan(2);
  const ValueType& update = c.node.operands[1].type();
  if (!c.operands[0].defined()) result[0] = dynamic_update(ct, zeros_of(update), starts);
  if (!c.operands[1].defined()) result[1] = dynamic_slice(ct, starts, update.shape.vec());
  return result;
}

std::vector<Batched> batch(const BatchContext& c) {
  const LaneStarts lanes = lane_starts(c, 2);
  if (lanes.differ && num_moving_axes(c.node.operands[0].shape(), c.node.operands[1].shape().dims()) == 0)
    return {c.operands[1]};
  return {{dynamic_update(with_batch(c.operands[0], c.size), with_batch(c.operands[1], c.size), lanes.starts), true}};
}

}  // namespace

std::vector<OpDef> ops_dynamic_update() {
  OpDef def = movement_op("dynamic_update", "x with a part overwritten at run-time starts, moved so that it fits",
                          OpKind::DynamicUpdate, -1);
  def.infer = infer;
  def.eval = eval;
  def.axes = [](const Node& node) {
    std::vector<AxisLink> links;
    link_part(links, node, 1);
    for (int k = 0; k < static_cast<int>(node.operands.size()); ++k)
      if (k != 1) link_same(links, node, k);
    return links;
  };
  def.jvp = jvp;
  def.transpose = transpose_rule;
  def.batch = batch;
  def.samples = [](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (const SamplePart& p : sample_parts(dtype)) {
      samples.push_back({{random_array(rng, p.dtype, p.whole), random_array(rng, p.dtype, p.part)}, {}, {}});
      append_sample_starts(rng, p, samples.back().operands);
    }
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
