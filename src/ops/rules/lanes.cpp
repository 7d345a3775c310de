#include "ops/rules/lanes.h"

#include <limits>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop::ir {

Value clamped_indices(Value indices, std::int64_t extent) {
  return minimum(maximum(indices, like(indices, 0)), like(indices, static_cast<double>(extent - 1)));
}

Value indices_in_range(Value indices, std::int64_t extent) {
  return bit_and(greater_equal(indices, like(indices, 0)), less(indices, like(indices, static_cast<double>(extent))));
}

Value with_lane_offset(Value indices, std::int64_t extent) {
  const std::int64_t largest = indices.shape()[0] * extent;
  const Value wide = cast(indices, largest > std::numeric_limits<std::int32_t>::max() ? DType::I64 : DType::I32);
  return iota(wide.dtype(), wide.shape(), 0) * static_cast<double>(extent) + wide;
}

Value lanes_joined(Value x, std::int64_t axis) {
  std::vector<std::int64_t> permutation = {0, axis + 1};
  for (std::int64_t i : other_axes(x.rank(), permutation)) permutation.push_back(i);
  const Value moved = transpose(x, permutation);
  Shape shape = moved.shape().without(0);
  shape[0] *= moved.shape()[0];
  return reshape(moved, shape);
}

Value lanes_parted(Value x, std::int64_t axis, std::int64_t num_lanes) {
  Shape shape = x.shape().with_inserted(0, num_lanes);
  shape[1] /= num_lanes;
  std::vector<std::int64_t> permutation = {0};
  for (std::int64_t i = 2; i < shape.rank(); ++i) permutation.push_back(i);
  permutation.insert(permutation.begin() + 1 + axis, 1);
  return transpose(reshape(x, shape), permutation);
}

}  // namespace hotloop::ir
