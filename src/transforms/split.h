// Partial evaluation: separating what is known (primal) from what is linear in the unknown inputs (tangents).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ir/rewrite.h"
#include "ops/rules/lane_axes.h"

namespace hotloop::ir {

inline std::size_t id_of(Value v) { return static_cast<std::size_t>(v.node->id); }

// A graph equal to another in which every node, loops and calls included, is either known or linear: those of the
// original that were both are two nodes, the linear one reading residuals that the known one gives.
struct Split {
  std::shared_ptr<const Graph> graph;
  std::vector<bool> linear;  // of each node: depends on an unknown input

  bool is_linear(Value v) const { return linear[id_of(v)]; }
};
Split split(const Graph& graph, const std::vector<bool>& known_inputs);

// Ops that cost next to nothing to do again: their results are not worth saving.
bool is_cheap(const Node& node);
// Copies to the current graph what `values` need and `map` lacks; gives the copies.
std::vector<Value> copy_needed(const Graph& from, ValueMap& map, std::span<const Value> values,
                               int generation_bump = 0);

// The results of a loop or call node of which some operands (values of the current graph) are known, appended as two.
// The flags say which operands are known.
std::vector<Value> split_loop(const Node& node, std::span<const Value> operands, const std::vector<bool>& known);
std::vector<Value> split_call(const Node& node, std::span<const Value> operands, const std::vector<bool>& known);

}  // namespace hotloop::ir
