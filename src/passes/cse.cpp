// Common subexpressions: two nodes of one op with the same operands, attributes and regions are one.
#include "passes/equal_nodes.h"

namespace hotloop::passes {
namespace {

std::shared_ptr<const Graph> cse_level(const Graph& graph, const Level&) {
  ir::Rebuild rebuild(graph);
  EqualNodes table;
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == ir::OpKind::Input) continue;
    if (const Node* earlier = table.find(*node, rebuild.operands(*node))) {
      for (int i = 0; i < static_cast<int>(node->types.size()); ++i)
        rebuild.map().set(node->result(i), {const_cast<Node*>(earlier), i});
      changed = true;
    } else {
      table.insert(*rebuild.copy(*node));
    }
  }
  return changed ? rebuild.finish() : nullptr;
}

}  // namespace

Pass cse() {
  return {"cse", "computes equal expressions once", true,
          [](const Graph& graph, const PassOptions&) { return rewrite_levels(graph, cse_level); }};
}

}  // namespace hotloop::passes
