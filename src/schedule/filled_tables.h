// Tables that a loop fills and does not read: what solvers save on their way, and other results whose length is not known before.
#pragma once

#include "schedule/context.h"

namespace hotloop {

// Whether `table`, a result of a loop, is a carry of which each iteration replaces parts, at places that each row of the tile has of its own, and of which
// nothing is read before the loop ends. What rows keep that have finished is no reading (kept_part).
bool is_only_filled(const LoweringContext& context, Value table);

}  // namespace hotloop
