// Run-time start positions, one i32 scalar an axis, as dynamic_slice and dynamic_update take them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ir/op_def.h"

namespace hotloop::ir {

// UserError unless there is one i32 scalar for each axis of operands[0] and `sizes` fit into it.
void check_starts(const InferContext& c, std::size_t first_start, std::span<const std::int64_t> sizes);

// The starts as evaluated, moved so that `sizes` fit into `shape`.
std::vector<std::int64_t> clamped_starts(const EvalContext& c, std::size_t first_start, const Shape& shape,
                                         std::span<const std::int64_t> sizes);

// Number of leading axes up to the last one whose size differs from its extent: on the others every start clamps to 0.
int num_moving_axes(const Shape& shape, std::span<const std::int64_t> sizes);

// Whether the lanes start elsewhere. A batch of one does not: its starts are those of its only lane, without the batch's axis.
struct LaneStarts {
  bool differ = false;
  std::vector<Batched> starts;
};
LaneStarts lane_starts(const BatchContext& c, std::size_t first_start);

// start[axis] clamped so that `size` fits into `extent`, repeated to `shape`, whose leading axis is the lanes.
Value clamped_start(const Batched& start, std::int64_t extent, std::int64_t size, const Shape& shape);

// Random starts, some of which need clamping.
void append_sample_starts(Rng& rng, const Shape& shape, std::vector<Array>& operands);

}  // namespace hotloop::ir
