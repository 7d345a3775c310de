#include "schedule/tile_nodes.h"

namespace hotloop {

using ir::OpKind;

std::int64_t row_size(const LoweringContext& context, Value v) {
  const int axis = context.axes().axis_in(v, context.tile_class);
  return axis < 0 || v.shape()[axis] == 0 ? 0 : v.shape().size() / v.shape()[axis];
}

bool ends_by_row(std::span<const Node* const> nodes) {
  return any_node(nodes, [](const Node& node) { return ir::is(node, OpKind::Loop) && node.regions.size() > 1; });
}

}  // namespace hotloop
