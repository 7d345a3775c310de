// Which dims of a nest fill vectors, where that changes no order.
#pragma once

#include "backends/llvm/map_nest.h"

namespace hotloop::codegen {

// Sums over lanes of numbers that lie apart, of rows that lie side by side: rows fill vectors instead, and each lane's sum is one of its own.
void deal_lanes(MapNest& nest);
// Rows side by side in some places and apart in others, where their columns are side by side: squares of both are turned between memory and memory.
void choose_square(MapNest& nest, bool masks_freely);
// Which accesses need no mask where the vector dim ends within a vector: MapNest::has_room.
std::vector<bool> accesses_with_room(const MapNest& nest, const ModuleState& state);

// Whether lanes take rows of a few numbers that lie side by side, all within the same reduction, such as the errors of a few outputs. Then numbers are read
// and computed as they lie, and dealt to the lanes of their rows as they are added; read by lanes each operand would be gathered.
bool sums_short_rows(const MapNest& nest);
// The nest whose lanes are these numbers, not rows.
MapNest by_numbers(MapNest nest, const ModuleState& state);

// Whether rows are summed and written at once, number by number, so that they come from memory and go there.
bool passes_rows_once(const MapNest& nest);
// Then as many vectors of a row as have room for their sums in registers, beside what computes them: what lies side by side is passed together.
// `weight`: MapNest::body_weight().
int vectors_beside_sums(const MapNest& nest, const ModuleState& state, int weight);

}  // namespace hotloop::codegen
