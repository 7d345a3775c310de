#include "passes/pass.h"

#include <algorithm>
#include <limits>
#include <map>

#include "ir/uniform_value.h"

namespace hotloop::passes {
namespace {

// What depends on nothing but the flagged inputs; of bound ones without products with zeros (is_zero_product).
std::vector<bool> depends_only_on(const Graph& graph, const std::vector<bool>& inputs, bool are_bound = false) {
  const ir::ValueIndex index(graph);
  std::vector<bool> only(static_cast<std::size_t>(index.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) only[static_cast<std::size_t>(index(graph.inputs()[i]))] = inputs[i];
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == ir::OpKind::Input || (are_bound && ir::is_zero_product(*node))) continue;
    const bool all =
        std::ranges::all_of(node->operands, [&](Value v) { return only[static_cast<std::size_t>(index(v))]; });
    for (int i = 0; all && i < static_cast<int>(node->types.size()); ++i)
      only[static_cast<std::size_t>(index(node->result(i)))] = true;
  }
  return only;
}

Level level_of(const Graph& graph, const Node* loop, const std::vector<bool>& bound) {
  if (loop) return {loop, invariant_values(graph, ir::LoopView(*loop))};
  if (bound.size() == graph.inputs().size()) return {nullptr, depends_only_on(graph, bound, true)};
  return {nullptr, std::vector<bool>(static_cast<std::size_t>(ir::ValueIndex(graph).size()))};
}

std::shared_ptr<const Graph> rewrite_level(const Graph& graph, const Node* loop, const LevelRewrite& rewrite,
                                           const std::vector<bool>& bound) {
  std::shared_ptr<const Graph> changed;
  std::map<const Node*, std::vector<std::shared_ptr<const Graph>>> new_regions;
  for (const auto& node : graph.nodes()) {
    for (std::size_t i = 0; i < node->regions.size(); ++i) {
      const bool is_body = node->op->kind == ir::OpKind::Loop && i == 0;
      if (auto result = rewrite_level(*node->regions[i], is_body ? node.get() : nullptr, rewrite, {}))
        new_regions.try_emplace(node.get(), node->regions).first->second[i] = result;
    }
  }
  if (!new_regions.empty()) {
    ir::Rebuild copy(graph);
    for (const auto& node : graph.nodes()) {
      if (node->op->kind == ir::OpKind::Input) continue;
      const auto it = new_regions.find(node.get());
      copy.copy(*node, it == new_regions.end() ? node->regions : it->second);
    }
    changed = copy.finish();
  }
  const Graph& now = changed ? *changed : graph;
  if (auto result = rewrite(now, level_of(now, loop, bound))) changed = result;
  return changed;
}

}  // namespace

std::vector<bool> invariant_values(const Graph& body, const ir::LoopView& loop) {
  std::vector<bool> consts(body.inputs().size());
  std::fill(consts.end() - loop.num_consts(), consts.end(), true);
  return depends_only_on(body, consts);
}

std::pair<int, int> place_of_partner(Value v, const Level& level, const ir::ValueIndex& index, const ir::Uses& uses) {
  const std::pair<int, int> by_itself = {std::numeric_limits<int>::max(), v.node->id};
  if (level.loop == nullptr) return by_itself;
  const auto& inputs = v.graph()->inputs();
  for (const ir::Use& use : uses.of(v)) {
    if (use.node->op->kind != ir::OpKind::Dot) continue;
    Value other = use.node->operands[static_cast<std::size_t>(1 - use.operand)];
    if (!level.invariant[static_cast<std::size_t>(index(other))]) continue;
    while (other.node->operands.size() == 1) other = other.node->operands[0];
    const auto position = std::ranges::find(inputs, other) - inputs.begin();
    if (position == static_cast<std::ptrdiff_t>(inputs.size())) continue;
    const Value outer = level.loop->operands[static_cast<std::size_t>(position)];
    return {outer.node->id, outer.index};
  }
  return by_itself;
}

std::shared_ptr<const Graph> rewrite_levels(const Graph& graph, const LevelRewrite& rewrite,
                                            const std::vector<bool>& bound) {
  return rewrite_level(graph, nullptr, rewrite, bound);
}

}  // namespace hotloop::passes
