// What depends on what, result by result: of a loop that carries several things around each for itself, and its count only if what ends it does.
#pragma once

#include <vector>

#include "hotloop/graph.h"

namespace hotloop::ir {

// Flags the outputs whose values depend on a flagged input.
std::vector<bool> depending_outputs(const Graph& graph, const std::vector<bool>& inputs);

}  // namespace hotloop::ir
