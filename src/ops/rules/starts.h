// Run-time start positions, as dynamic_slice and dynamic_update take them: one i32 scalar an axis, or one an element of some leading
// axes (lanes), each of which starts elsewhere; these axes have no start.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ir/op_def.h"
#include "ops/rules/walk.h"

namespace hotloop::ir {

// UserError unless there is a start for each axis of operands[0] that is no lane, and `sizes` fit into it.
void check_starts(const InferContext& c, std::size_t first_start, std::span<const std::int64_t> sizes);

// Number of leading axes whose elements start elsewhere.
int num_start_lanes(const Node& node, std::size_t first_start);

// The starts as evaluated, moved so that `sizes` fit into `shape`.
class StartsAt {
 public:
  StartsAt(const EvalContext& c, std::size_t first_start, const Shape& shape, std::span<const std::int64_t> sizes);
  // A place in the part becomes that in the whole.
  void move(Index& index) const;

 private:
  std::vector<std::int64_t> lane_strides_;
  std::vector<std::vector<std::int64_t>> starts_;  // of each axis, by lane
};

// Number of leading axes up to the last one whose size differs from its extent: on the others every start clamps to 0.
int num_moving_axes(const Shape& shape, std::span<const std::int64_t> sizes);

// Whether the elements of the batch start elsewhere, and the starts of the batched op: with the batch's axis where they do, else as they are,
// behind a zero for the batch's axis. A batch of one has one start: that of its only element, without the batch's axis.
struct LaneStarts {
  bool differ = false;
  std::vector<Batched> operands;  // as they came, but for that
  std::vector<Value> starts;
};
LaneStarts lane_starts(const BatchContext& c, std::size_t first_start);

// start[axis] clamped so that `size` fits into `extent`, repeated to `shape`, whose leading axis is the lanes.
Value clamped_start(const Batched& start, std::int64_t extent, std::int64_t size, const Shape& shape);

// Parts of arrays, for the property tests: of all ranks, of whole axes and of one element, one or several lanes.
struct SamplePart {
  DType dtype;
  Shape whole, part;
  int num_lanes = 0;
};
std::vector<SamplePart> sample_parts(DType dtype);

// Random starts of the part, some of which need clamping.
void append_sample_starts(Rng& rng, const SamplePart& part, std::vector<Array>& operands);

}  // namespace hotloop::ir
