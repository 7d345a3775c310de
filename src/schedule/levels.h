// Levels: a graph cut into phases that alternate between work without the tile axis (even levels, run once) and tile regions
// (odd levels, a Grid). A level starts where a value of an earlier one is needed whole: sums over the batch, above all.
#pragma once

#include <map>
#include <vector>

#include "schedule/context.h"

namespace hotloop {

struct Levels {
  std::map<const Node*, int> level;   // nodes that float (views, constants) have the level from which they can be read
  int num_levels = 0;

  bool is_tile(int l) const { return l % 2 == 1; }
};

// Nodes without work of their own: computed wherever they are used.
bool floats(const Node& node);
Levels assign_levels(const Graph& graph, const AxisAnalysis& axes, int tile_class);

// The whole graph into the context's program; result i of the graph goes to outputs[i].
kernel::Block lower_levels(LoweringContext& context, const Graph& graph, const std::vector<Storage>& outputs);

}  // namespace hotloop
