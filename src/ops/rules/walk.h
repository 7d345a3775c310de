// Walking over the elements of arrays by index, for the definitions of movement, reduction and contraction.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "hotloop/array.h"

namespace hotloop::ir {

using Index = std::vector<std::int64_t>;

// Row-major strides in elements.
std::vector<std::int64_t> strides_of(const Shape& shape);
std::int64_t flat_index(const Index& index, std::span<const std::int64_t> strides);

// Calls f(index) for every index of `shape`, the last axis fastest.
template <class F> void for_each_index(const Shape& shape, F&& f) {
  if (shape.size() == 0) return;
  Index index(static_cast<std::size_t>(shape.rank()), 0);
  while (true) {
    f(static_cast<const Index&>(index));
    int axis = shape.rank() - 1;
    for (; axis >= 0; --axis) {
      if (++index[static_cast<std::size_t>(axis)] < shape[axis]) break;
      index[static_cast<std::size_t>(axis)] = 0;
    }
    if (axis < 0) return;
  }
}

// out[index] = x[source(index)] where `source` gives a flat index into x.
template <class F> Array rearranged(const Array& x, const Shape& out_shape, F&& source) {
  Array out(x.dtype(), out_shape);
  const std::size_t width = size_of(x.dtype());
  auto* to = static_cast<std::byte*>(out.raw());
  const auto* from = static_cast<const std::byte*>(x.raw());
  for_each_index(out_shape, [&](const Index& index) {
    std::memcpy(to, from + static_cast<std::size_t>(source(index)) * width, width);
    to += width;
  });
  return out;
}

}  // namespace hotloop::ir
