// Reading the last step of a loop's ys as the final carry.
#pragma once

#include <memory>

#include "hotloop/graph.h"

namespace hotloop::ir {

// `ys[length - 1]` is the final carry where the body gives the same value as y and as carry (as a recurrent layer gives h). Written
// that way before differentiation, the cotangent enters the backward loop through the carry, and no stack of zeros
// with one step set has to be made and read. Null if the graph has no such slice.
std::shared_ptr<Graph> use_final_carries(const Graph& graph);

}  // namespace hotloop::ir
