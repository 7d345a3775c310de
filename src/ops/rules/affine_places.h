// Integers of a graph that are known to count evenly along each of their axes, as index arithmetic with ranges gives them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop::ir {

// offset + strides[0] * i + strides[1] * j + ... at element (i, j, ...).
struct AffinePlaces {
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;  // 0 along an axis of extent 1
};

// Nothing for numbers that are not known, do not count evenly, or leave the range of their dtype on the way.
std::optional<AffinePlaces> affine_places(Value v);
std::optional<AffinePlaces> affine_places(const Array& data);

// The lowest and the highest of them, of that shape, which has an element.
std::int64_t lowest(const AffinePlaces& places, const Shape& shape);
std::int64_t highest(const AffinePlaces& places, const Shape& shape);

}  // namespace hotloop::ir
