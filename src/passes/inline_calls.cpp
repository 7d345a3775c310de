// A call becomes its body. Calls carry derivative rules and remat marks; after the transforms neither means anything.
#include <algorithm>

#include "ir/rewrite.h"
#include "ops/composed/linear_call.h"
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

// What has no forward mode stays: reverse mode leaves the tangents that it transposed behind, which nobody wants.
bool is_inlined(const Node& node) { return node.op->kind == ir::OpKind::Call && !ir::is_reverse_only(node); }

std::shared_ptr<const Graph> inline_level(const Graph& graph, const Level&) {
  if (std::ranges::none_of(graph.nodes(), [](const auto& node) { return is_inlined(*node); })) return nullptr;
  ir::Rebuild rebuild(graph);
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == ir::OpKind::Input) continue;
    if (is_inlined(*node))
      inline_into(*node, rebuild);
    else
      rebuild.copy(*node);
  }
  return rebuild.finish();
}

std::shared_ptr<const Graph> inline_all(const Graph& graph, const PassOptions&) {
  const auto inlined = rewrite_levels(graph, inline_level);
  if (!ir::find_reverse_call(inlined ? *inlined : graph)) return inlined;
  const std::shared_ptr<const Graph> live = ir::eliminate_dead(inlined ? *inlined : graph);
  if (const Node* wanted = ir::find_reverse_call(live ? *live : inlined ? *inlined : graph))
    ir::refuse_forward_mode(*wanted);
  return live;
}

}  // namespace

Pass inline_calls() { return {"inline_calls", "a call becomes its body", false, inline_all}; }

}  // namespace hotloop::passes
