// A call becomes its body. Calls carry derivative rules and remat marks; after the transforms neither means anything.
#include <algorithm>

#include "passes/inline_body.h"
#include "passes/pass.h"

namespace hotloop::passes {
namespace {

void inline_into(const Node& call, ir::Rebuild& rebuild) {
  const Graph& body = *call.regions[0];
  ir::ValueMap map(body);
  for (std::size_t i = 0; i < body.inputs().size(); ++i) map.set(body.inputs()[i], rebuild(call.operands[i]));
  inline_body(body, call, map, rebuild);
  for (std::size_t i = 0; i < body.outputs().size(); ++i)
    rebuild.map().set({const_cast<Node*>(&call), static_cast<int>(i)}, map(body.outputs()[i]));
}

std::shared_ptr<const Graph> inline_level(const Graph& graph, const Level&) {
  const auto is_call = [](const auto& node) { return node->op->kind == ir::OpKind::Call; };
  if (std::ranges::none_of(graph.nodes(), is_call)) return nullptr;
  ir::Rebuild rebuild(graph);
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == ir::OpKind::Input) continue;
    if (is_call(node))
      inline_into(*node, rebuild);
    else
      rebuild.copy(*node);
  }
  return rebuild.finish();
}

}  // namespace

Pass inline_calls() {
  return {"inline_calls", "a call becomes its body", false,
          [](const Graph& graph, const PassOptions&) { return rewrite_levels(graph, inline_level); }};
}

}  // namespace hotloop::passes
