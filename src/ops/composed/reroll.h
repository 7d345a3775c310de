// Loops found in straight code.
#pragma once

#include <functional>
#include <memory>

#include "hotloop/graph.h"

namespace hotloop::ir {

// A program written as a loop of its language (`for t in range(T): h = cell(h, x[:, t])`) is traced as T copies of a step. Where at least eight
// copies follow each other they become one loop node: what a step reads of the step before is carried, slices and literals that advance from step to
// step are its xs, what is read of all steps its ys. So it compiles and runs as a scan does, and so do its derivatives, if this is done before they are
// taken. Null if there is none. `may_scan` says whether slices along an axis of that extent may become steps.
std::shared_ptr<Graph> reroll(const Graph& graph, const std::function<bool(std::int64_t extent)>& may_scan = {});

}  // namespace hotloop::ir
