// Which axis of a node's result runs with an axis of one of its operands.
#pragma once

#include "hotloop/graph.h"

namespace hotloop::ir {

// Of operand `k` of a node without regions: element i along the result's axis needs element i along `axis` only. -1 if there is no such axis.
int result_axis(const Node& node, int k, int axis);

}  // namespace hotloop::ir
