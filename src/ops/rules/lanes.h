// Indices of gather and scatter_add, which lanes may have of their own (num_lane_axes).
#pragma once

#include <string_view>

#include "hotloop/graph.h"
#include "ir/op_def.h"

namespace hotloop::ir {

// The shape of operands[0] with `axis` replaced by the axes of the indices, operands[1], that are no lanes.
Shape gathered_shape(std::string_view where, const InferContext& c, int axis);

// An index as evaluated; a double would not hold all of 64 bits.
std::int64_t index_at(const Array& indices, std::int64_t flat_index);

// indices limited to [0, extent).
Value clamped_indices(Value indices, std::int64_t extent);
// Where indices lie in [0, extent), as bool.
Value indices_in_range(Value indices, std::int64_t extent);

}  // namespace hotloop::ir
