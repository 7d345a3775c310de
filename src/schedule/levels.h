// Levels: a graph cut into phases that alternate between work without the tile axis (even levels, run once) and regions (odd
// levels: a Grid over the tiles, and loops whose bodies hold tile regions of their own, such as a loop of training steps).
// A level starts where a value of an earlier one is needed whole: sums over the batch, above all.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "schedule/context.h"

namespace hotloop {

struct Levels {
  std::map<const Node*, int> level;  // nodes that float (views, constants) have the level from which they can be read
  std::map<const Node*, int> outer_loops;  // loops that hold tile regions, with the tile class of their body
  int num_levels = 0;

  bool is_region(int l) const { return l % 2 == 1; }
};

// A sum over the tiles' axis whose parts each block of tiles adds up; it is whole one level after that where it is computed.
bool sums_in_parts(const Node& node, const AxisAnalysis& axes, int tile_class);
// Nodes without work of their own: computed wherever they are used.
bool floats(const Node& node);
// rows_class: the class of a variable number of rows, or -1.
Levels assign_levels(const Graph& graph, const AxisAnalysis& axes, int tile_class, int rows_class);

// Where a result of a graph goes; `overwrites` is the input that lies there until then, if any.
struct LevelOutput {
  std::optional<Storage> storage;  // nothing: the result is not wanted
  std::optional<Value> overwrites;
};

// The whole graph into the context's program; result i of the graph goes to outputs[i]. The context's tile class is that of
// the graph.
kernel::Block lower_levels(LoweringContext& context, const Graph& graph, const std::vector<LevelOutput>& outputs);

}  // namespace hotloop
