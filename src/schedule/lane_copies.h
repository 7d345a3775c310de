// What a tile by lanes reads of memory that has another layout, again and again or row by row: copied once, with the rows of the tile side by side.
#pragma once

#include <span>

#include "schedule/block.h"

namespace hotloop {

// The copies, for the beginning of a tile that computes `nodes`; the values are bound to them.
kernel::Block copy_rows_innermost(LoweringContext& context, std::span<const Node* const> nodes);

}  // namespace hotloop
