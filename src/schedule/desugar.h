// Preparation of a graph for lowering: every region becomes its own copy, and a loop with a predicate per lane gets the
// freezing of finished lanes written into its body.
#pragma once

#include <memory>

#include "hotloop/graph.h"

namespace hotloop {

std::shared_ptr<Graph> desugar(const Graph& graph);

}  // namespace hotloop
