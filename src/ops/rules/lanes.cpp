#include "ops/rules/lanes.h"

#include <string>

#include "core/convert.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop::ir {

Shape gathered_shape(std::string_view where, const InferContext& c, int axis) {
  const Shape &x = c.operands[0].shape, &indices = c.operands[1].shape;
  const int lanes = num_lane_axes(c.attrs);
  bool shared = lanes >= 0 && lanes <= axis && lanes <= indices.rank();
  for (int i = 0; shared && i < lanes; ++i) shared = x[i] == indices[i];
  if (!shared)
    throw UserError(std::string(where), "x and the indices must share the lanes, their leading axes, before the axis",
                    std::to_string(lanes) + " of " + types_text(c.operands.first(2)));
  std::vector<std::int64_t> dims = x.vec();
  dims.erase(dims.begin() + axis);
  const auto inner = indices.dims();
  dims.insert(dims.begin() + axis, inner.begin() + lanes, inner.end());
  return Shape(dims);
}

std::int64_t index_at(const Array& indices, std::int64_t flat_index) {
  return visit_dtype(indices.dtype(), [&]<class T>(T) {
    return converted<std::int64_t>(static_cast<const T*>(indices.raw())[flat_index]);
  });
}

// A bound that the dtype does not reach is that of the dtype: like() saturates.
Value clamped_indices(Value indices, std::int64_t extent) {
  return minimum(maximum(indices, like(indices, 0)), like(indices, static_cast<double>(extent - 1)));
}

Value indices_in_range(Value indices, std::int64_t extent) {
  if (!holds(indices.dtype(), extent)) return greater_equal(indices, like(indices, 0));
  return bit_and(greater_equal(indices, like(indices, 0)), less(indices, like(indices, static_cast<double>(extent))));
}

}  // namespace hotloop::ir
