// Rows of an ensemble that need different numbers of iterations stream through a fixed number of slots (docs/decisions/0013).
#pragma once

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// Grids whose tiles run one loop until the predicate of each row holds are rewritten: a block has a fixed number of slots, and a slot whose
// row has finished takes the next row. Every row's arithmetic stays what it was. Other grids, and those with a tile a block, stay.
void stream_lanes(Program& program);

}  // namespace hotloop::kernel
