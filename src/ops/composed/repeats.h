// Steps that a graph repeats, as far as operations and types tell.
#pragma once

#include <span>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop::ir {

inline constexpr int fewest_steps = 8;

// `count` steps of `period` nodes from `start` on, in a list of the graph's nodes without its inputs.
struct Run {
  int start, period, count;
  int end() const { return start + period * count; }
};

// Whether b may be the same node as a one step later: slices may be elsewhere, literals may differ.
bool alike(const Node& a, const Node& b);

// Stretches of a list of nodes in which each looks like that one period later, the one that covers most first.
std::vector<Run> find_repeats(std::span<const Node* const> nodes);

}  // namespace hotloop::ir
