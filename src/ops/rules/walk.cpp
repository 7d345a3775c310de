#include "ops/rules/walk.h"

namespace hotloop::ir {

std::vector<std::int64_t> strides_of(const Shape& shape) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(shape.rank()));
  std::int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<std::size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return strides;
}

std::int64_t flat_index(const Index& index, std::span<const std::int64_t> strides) {
  std::int64_t flat = 0;
  for (std::size_t i = 0; i < index.size(); ++i) flat += index[i] * strides[i];
  return flat;
}

}  // namespace hotloop::ir
