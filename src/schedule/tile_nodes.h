// Walks over the nodes of a level, into their loops, and what such a node has for a row of the tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "ir/op_def.h"
#include "schedule/context.h"

namespace hotloop {

// Calls visit(node, loops around it, how often it runs) for what is computed.
template <class F> void for_each_node(const Node& node, int depth, double times, const F& visit) {
  if (ir::is(node, ir::OpKind::Input)) return;
  visit(node, depth, times);
  if (!ir::is(node, ir::OpKind::Loop)) return;
  const double more = times * static_cast<double>(std::max<std::int64_t>(node.attrs.integer("length"), 1));
  for (const auto& region : node.regions)
    for (const auto& inner : region->nodes()) for_each_node(*inner, depth + 1, more, visit);
}

inline Value result_of(const Node& node, std::size_t i) { return {const_cast<Node*>(&node), static_cast<int>(i)}; }

// Numbers of v that belong to one row of the tile; nothing if it has no rows.
std::int64_t row_size(const LoweringContext& context, Value v);

// Whether the predicate holds for a node, also inside loops.
template <class F> bool any_node(std::span<const Node* const> nodes, const F& predicate) {
  bool any = false;
  for (const Node* n : nodes)
    for_each_node(*n, 0, 1, [&](const Node& node, int, double) { any = any || predicate(node); });
  return any;
}

// Whether a loop ends for each row by itself: its rows may stream (stream_lanes.h), which needs their number in a register.
bool ends_by_row(std::span<const Node* const> nodes);

}  // namespace hotloop
