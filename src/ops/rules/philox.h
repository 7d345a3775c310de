// Philox4x32-10 as a composition of integer ops, for keys that the primitive does not take: one a lane.
#pragma once

#include "hotloop/graph.h"

namespace hotloop::ir {

// random_bits of each key of keys (u32[lanes, 2]): u32[lanes, shape...], the same words as the primitive gives.
Value random_bits_of_lanes(Value keys, const Shape& shape);

}  // namespace hotloop::ir
