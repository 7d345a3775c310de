// How the axes of a node's operands run into those of its result, as its op declares (OpDef::axes): what batching, tiling, structure of
// Jacobians and resizing ask instead of knowing ops.
#pragma once

#include <span>
#include <vector>

#include "ir/op_def.h"

namespace hotloop::ir {

// Of a node without regions.
std::vector<AxisLink> axis_links(const Node& node);

// The axis of the result whose element i needs element i along `axis` of the operand alone; -1 if there is no such axis.
int result_axis(std::span<const AxisLink> links, int operand, int axis);

}  // namespace hotloop::ir
