#include "passes/pass.h"

#include <algorithm>

namespace hotloop::passes {
namespace {

Level level_of(const Graph& graph, const Node* loop) {
  Level level{loop, {}};
  if (loop) level.invariant = invariant_values(graph, ir::LoopView(*loop));
  else level.invariant.assign(static_cast<std::size_t>(ir::ValueIndex(graph).size()), false);
  return level;
}

std::shared_ptr<const Graph> rewrite_level(const Graph& graph, const Node* loop, const LevelRewrite& rewrite) {
  std::shared_ptr<const Graph> changed;
  const auto has_regions = [](const auto& node) { return !node->regions.empty(); };
  if (std::ranges::any_of(graph.nodes(), has_regions)) {
    bool inner_changed = false;
    ir::Rebuild copy(graph);
    for (const auto& node : graph.nodes()) {
      if (node->op->kind == ir::OpKind::Input) continue;
      auto regions = node->regions;
      for (std::size_t i = 0; i < regions.size(); ++i) {
        const bool is_body = node->op->kind == ir::OpKind::Loop && i == 0;
        if (auto result = rewrite_level(*regions[i], is_body ? node.get() : nullptr, rewrite)) {
          regions[i] = result;
          inner_changed = true;
        }
      }
      copy.copy(*node, std::move(regions));
    }
    if (inner_changed) changed = copy.finish();
  }
  const Graph& now = changed ? *changed : graph;
  if (auto result = rewrite(now, level_of(now, loop))) changed = result;
  return changed;
}

}  // namespace

std::vector<bool> invariant_values(const Graph& body, const ir::LoopView& loop) {
  const ir::ValueIndex index(body);
  std::vector<bool> invariant(static_cast<std::size_t>(index.size()));
  for (int i = 0; i < loop.num_consts(); ++i) {
    const auto at = body.inputs().size() - static_cast<std::size_t>(loop.num_consts() - i);
    invariant[static_cast<std::size_t>(index(body.inputs()[at]))] = true;
  }
  for (const auto& node : body.nodes()) {
    if (node->op->kind == ir::OpKind::Input) continue;
    const bool all = std::ranges::all_of(
        node->operands, [&](Value v) { return invariant[static_cast<std::size_t>(index(v))]; });
    for (int i = 0; all && i < static_cast<int>(node->types.size()); ++i)
      invariant[static_cast<std::size_t>(index(node->result(i)))] = true;
  }
  return invariant;
}

std::shared_ptr<const Graph> rewrite_levels(const Graph& graph, const LevelRewrite& rewrite) {
  return rewrite_level(graph, nullptr, rewrite);
}

}  // namespace hotloop::passes
