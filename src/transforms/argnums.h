// Positions of the inputs with respect to which a derivative is taken.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop::ir {

// UserError, naming `where`, unless every position is of an f32 or f64 input.
void check_argnums(const std::string& where, std::span<const Value> inputs, std::span<const int> argnums);
// True at the positions named.
std::vector<bool> argnum_flags(std::size_t size, std::span<const int> argnums);
// UserError unless every output is f32 or f64.
void check_float_outputs(const std::string& where, std::span<const Value> outputs);

}  // namespace hotloop::ir
