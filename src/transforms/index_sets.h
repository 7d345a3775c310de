// The exact half of finding a Jacobian's zeros: for every element of an output, the set of elements of the input on which its
// derivative can depend.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ir/rewrite.h"
#include "transforms/pattern.h"

namespace hotloop::ir {

struct FoundPattern {
  enum class Outcome { Sparse, Full, TooManySteps } outcome = Outcome::Full;
  Pattern pattern;  // if Sparse
};

// Runs the graph on sets of indices instead of numbers, loops step by step. What is known without the inputs (constants, and what is
// computed from them) is used: products with zero vanish, selections and gathers are followed.
//
// The axes of the input and output 0 named in `paired` (output axis, input axis) are known to be aligned (axis_flow.h); along
// them one index stands for all. Rows and columns of the result are the elements along the other axes.
// Gives up when that takes more than `max_steps` elementary steps, the pattern's elements counted. `known`: for each input its numbers, undefined where
// they are not known; all are unknown where it is empty.
FoundPattern find_pattern(const Graph& graph, int input, const std::vector<std::pair<int, int>>& paired,
                          std::int64_t max_steps, std::span<const Array> known = {});

}  // namespace hotloop::ir
