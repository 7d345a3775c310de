// CompileOptions::dot_precision: the factors of every f32 dot are rounded to bfloat16. Last, so that every other pass sees plain dots, and an
// option that changes results changes no structure.
#include "passes/pass.h"

namespace hotloop::passes {
namespace {

bool is_rounded(const Node& node) {
  return node.op->kind == ir::OpKind::Dot && node.types[0].dtype == DType::F32 && !node.attrs.has("precision");
}

std::shared_ptr<const Graph> round_level(const Graph& graph) {
  ir::Rebuild rebuild(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == ir::OpKind::Input) continue;
    Node* copied = rebuild.copy(*node);
    if (!is_rounded(*node)) continue;
    copied->attrs.set("precision", std::string("bf16"));
    changed = true;
  }
  return changed ? rebuild.finish() : nullptr;
}

}  // namespace

Pass round_factors() {
  return {"round_factors", "rounds the factors of dots to bfloat16 where dot_precision asks for it", false,
          [](const Graph& graph, const PassOptions& options) -> std::shared_ptr<const Graph> {
            if (!options.rounds_factors) return nullptr;
            return rewrite_levels(graph, [](const Graph& g, const Level&) { return round_level(g); });
          }};
}

}  // namespace hotloop::passes
