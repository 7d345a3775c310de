#include "ops/rules/starts.h"

#include <algorithm>

#include "core/convert.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/batching.h"
#include "ops/rules/sampling.h"

namespace hotloop::ir {

void check_starts(const InferContext& c, std::size_t first_start, std::span<const std::int64_t> sizes) {
  const std::string where(c.op_name);
  const ValueType& x = c.operands[0];
  require_one_an_axis(where, "sizes", sizes.size(), x);
  for (int i = 0; i < x.shape.rank(); ++i) {
    const std::int64_t size = sizes[static_cast<std::size_t>(i)];
    if (size < 0 || size > x.shape[i])
      throw UserError(where, "the part must fit into the operand on every axis",
                      Shape(std::vector(sizes.begin(), sizes.end())).str() + " of " + x.str());
    if (!holds(DType::I32, x.shape[i] - size))
      throw UserError(where, "i32 starts must reach the last place where the part fits",
                      Shape(std::vector(sizes.begin(), sizes.end())).str() + " of " + x.str(),
                      "reshape() to shorter axes");
  }
  const auto starts = c.operands.subspan(first_start);
  const Shape lanes = starts.empty() ? Shape{} : starts[0].shape;
  const auto num_lanes = static_cast<std::size_t>(lanes.rank());
  bool fits = starts.size() + num_lanes == sizes.size() && std::ranges::all_of(starts, [&](const ValueType& t) {
                return t == ValueType{DType::I32, lanes};
              });
  for (std::size_t i = 0; fits && i < num_lanes; ++i)
    fits = x.shape[static_cast<int>(i)] == lanes[static_cast<int>(i)] && sizes[i] == lanes[static_cast<int>(i)];
  if (!fits)
    throw UserError(where, "there must be one i32 scalar start for each axis", types_text(starts) + " for " + x.str(),
                    "cast(start, DType::I32)");
}

int num_start_lanes(const Node& node, std::size_t first_start) {
  return node.operands.size() > first_start ? node.operands[first_start].rank() : 0;
}

StartsAt::StartsAt(const EvalContext& c, std::size_t first_start, const Shape& shape,
                   std::span<const std::int64_t> sizes) {
  const int num_lanes = num_start_lanes(c.node, first_start);
  if (num_lanes > 0) lane_strides_ = strides_of(c.operands[first_start].shape());
  for (int i = num_lanes; i < shape.rank(); ++i) {
    const Array& wanted = c.operands[first_start + static_cast<std::size_t>(i - num_lanes)];
    auto& starts = starts_.emplace_back();
    for (const std::int32_t start : wanted.data<std::int32_t>())
      starts.push_back(std::clamp<std::int64_t>(start, 0, shape[i] - sizes[static_cast<std::size_t>(i)]));
  }
}

void StartsAt::move(Index& index) const {
  std::int64_t lane = 0;
  for (std::size_t i = 0; i < lane_strides_.size(); ++i) lane += index[i] * lane_strides_[i];
  for (std::size_t i = 0; i < starts_.size(); ++i)
    index[lane_strides_.size() + i] += starts_[i][static_cast<std::size_t>(lane)];
}

int num_moving_axes(const Shape& shape, std::span<const std::int64_t> sizes) {
  int n = shape.rank();
  while (n > 0 && sizes[static_cast<std::size_t>(n - 1)] == shape[n - 1]) --n;
  return n;
}

LaneStarts lane_starts(const BatchContext& c, std::size_t first_start) {
  LaneStarts out;
  const bool have_lanes = num_start_lanes(c.node, first_start) > 0;
  out.differ = have_lanes;
  for (const Batched& start : c.operands.subspan(first_start)) {
    const bool one = start.batched && c.size == 1 && !have_lanes;
    out.differ = out.differ || (start.batched && !one);
    out.operands.push_back(one ? Batched{reshape(start.value, {}), false} : start);
  }
  if (!out.differ) out.starts.push_back(constant(0, DType::I32));
  for (const Batched& start : out.operands) out.starts.push_back(out.differ ? with_batch(start, c.size) : start.value);
  return out;
}

Value clamped_start(const Batched& start, std::int64_t extent, std::int64_t size, const Shape& shape) {
  const Value low = maximum(start.value, like(start.value, 0));
  const Value fitting = minimum(low, like(low, static_cast<double>(extent - size)));
  return broadcast(fitting, shape, start.batched ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{});
}

std::vector<SamplePart> sample_parts(DType dtype) {
  return {{dtype, {}, {}},         {dtype, {7}, {3}},          {dtype, {1}, {1}},
          {dtype, {5, 3}, {1, 3}}, {dtype, {4, 5}, {2, 3}},    {dtype, {2, 3, 5}, {2, 1, 5}},
          {DType::I32, {5}, {2}},  {dtype, {3, 5}, {3, 2}, 1}, {dtype, {4, 2, 3}, {4, 2, 1}, 2}};
}

void append_sample_starts(Rng& rng, const SamplePart& part, std::vector<Array>& operands) {
  Shape lanes;
  for (int i = 0; i < part.num_lanes; ++i) lanes.push_back(part.whole[i]);
  for (int i = part.num_lanes; i < part.whole.rank(); ++i)
    operands.push_back(random_array(rng, DType::I32, lanes, -1, static_cast<double>(part.whole[i])));
}

}  // namespace hotloop::ir
