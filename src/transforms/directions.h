// Directions in which derivatives are taken, many at once.
#pragma once

#include <span>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop::ir {

// (num_rows, places.size()): row r is one where places holds r. Written with iota, so that no array of zeros is stored.
Value one_hot(std::span<const std::int64_t> places, std::int64_t num_rows, DType dtype);
// The unit tangents of a value: (size, shape).
Value unit_tangents(const ValueType& type);
// The leading axis moved behind the others.
Value front_to_back(Value x);

}  // namespace hotloop::ir
