// What a step of a stream is given.
#pragma once

#include "hotloop/array.h"

namespace hotloop {

// Whether the second axis of an input [batch, ...] is one of time, of one step.
bool has_a_step(const ValueType& input);

}  // namespace hotloop
