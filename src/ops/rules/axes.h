// Pieces of the rules that say how axes run (OpDef::axes).
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace hotloop::ir {

// The axes of every operand are those of the result.
std::vector<AxisLink> axes_elementwise(const Node& node);

// For the rules of others: the operand's axes are the result's.
void link_same(std::vector<AxisLink>& links, const Node& node, int operand);
// The one is a part of the other along axes where their extents differ.
void link_part(std::vector<AxisLink>& links, const Node& node, int operand);

// Some axes of the one operand are missing in the result: summed over, or mixed.
std::vector<AxisLink> axes_without(const Node& node, const std::vector<std::int64_t>& gone, AxisUse use);

}  // namespace hotloop::ir
