// Ops whose result is written at places computed at run time or with gaps, and argmax: statements of their own.
#pragma once

#include "schedule/context.h"

namespace hotloop {

// scatter_add, dynamic_update, pad with interior, argmax into `target`. With `accumulate`, which only a scatter_add takes, its updates are
// added to what is there.
kernel::Block lower_indirect_write(LoweringContext& context, const Node& node, const Storage& target, bool accumulate);

}  // namespace hotloop
