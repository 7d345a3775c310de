// What a step of a stream is given.
#pragma once

#include <cstdint>

#include "hotloop/array.h"
#include "hotloop/nn.h"
#include "hotloop/tree.h"

namespace hotloop {

// Whether the second axis of an input [batch, ...] is one of time, of one step.
bool has_a_step(const ValueType& input);

// What the model's initial_state() computes.
Tree<Array> initial_state(const nn::Layer& model, std::int64_t batch, DType dtype);

}  // namespace hotloop
