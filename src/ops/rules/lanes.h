// Indirect access with an index for each lane, which the primitives do not have: lanes and the indexed axis are
// flattened into one axis, and each lane's indices are offset by the elements of the lanes before it.
#pragma once

#include "hotloop/graph.h"

namespace hotloop::ir {

// indices limited to [0, extent).
Value clamped_indices(Value indices, std::int64_t extent);
// Where indices lie in [0, extent), as bool.
Value indices_in_range(Value indices, std::int64_t extent);

// indices[lane, ...] + lane * extent, in a dtype that holds the largest.
Value with_lane_offset(Value indices, std::int64_t extent);

// (lanes, before..., n, after...), n being axis `axis` + 1 -> (lanes * n, before..., after...), and back.
Value lanes_joined(Value x, std::int64_t axis);
Value lanes_parted(Value x, std::int64_t axis, std::int64_t num_lanes);

}  // namespace hotloop::ir
