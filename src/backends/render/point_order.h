// Which points of a Map threads may share out among them.
#pragma once

#include <vector>

#include "schedule/kernel_ir.h"

namespace hotloop::render {

// Outer dims of a Map: points that differ in `shared` (the first varies fastest from thread to thread) may run at once; the dims of `in_order` run one
// after the other, outermost first, at each of these.
struct PointOrder {
  std::vector<int> shared, in_order;
};
PointOrder order_of(const kernel::Map& map);

}  // namespace hotloop::render
