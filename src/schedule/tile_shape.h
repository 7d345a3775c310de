// How a level is cut into tiles: how many rows each has, and whether rows fill vectors.
#pragma once

#include <cstdint>
#include <span>

#include "schedule/context.h"

namespace hotloop {

struct TileShape {
  std::int64_t rows = 1;
  std::int64_t parts = 1;        // equal ones of a tile, which sums over the rows go through (docs/decisions/0034)
  std::int64_t most_blocks = 1;  // of parts: each keeps sums over its rows
  bool by_lanes = false;         // docs/decisions/0012
  bool all_full = false;         // every tile has so many rows, which are then static extents
};

// `nodes` are those of one region of `graph`; regions of their loops count.
TileShape choose_tile_shape(const LoweringContext& context, const Graph& graph, std::span<const Node* const> nodes);

}  // namespace hotloop
