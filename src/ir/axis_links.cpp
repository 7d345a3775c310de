#include "ir/axis_links.h"

#include "hotloop/error.h"

namespace hotloop::ir {

std::vector<AxisLink> axis_links(const Node& node) {
  if (node.op->axes) return node.op->axes(node);
  HOTLOOP_CHECK(node.operands.empty() && node.regions.empty(), "op '" + node.op->name + "' has no rule for axes");
  return {};
}

int result_axis(std::span<const AxisLink> links, int operand, int axis) {
  for (const AxisLink& link : links)
    if (link.operand == operand && link.axis == axis && link.use == AxisUse::Same) return link.to;
  return -1;
}

}  // namespace hotloop::ir
