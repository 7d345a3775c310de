#include "passes/horizontal.h"

#include <algorithm>

#include "hotloop/error.h"

namespace hotloop::passes {

Horizontal::Horizontal(const Graph& graph) : graph_(graph), group_of_(graph.nodes().size(), -1) {}

bool Horizontal::independent(const std::vector<const Node*>& members, const std::vector<Value>& needs) const {
  std::vector<bool> seen(graph_.nodes().size());
  std::vector<const Node*> stack;
  const auto push = [&](const Node* node) {
    const auto id = static_cast<std::size_t>(node->id);
    if (!seen[id]) {
      seen[id] = true;
      stack.push_back(node);
    }
  };
  for (const Node* m : members)
    for (const Value& v : m->operands) push(v.node);
  for (const Value& v : needs) push(v.node);
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (std::ranges::find(members, node) != members.end()) return false;
    for (const Value& v : node->operands) push(v.node);
    if (!is_taken(*node)) continue;
    const Group& group = groups_[static_cast<std::size_t>(group_of_[static_cast<std::size_t>(node->id)])];
    for (const Node* m : group.members) push(m);
    for (const Value& v : group.needs) push(v.node);
  }
  return true;
}

void Horizontal::accept(Group group) {
  for (const Node* m : group.members) group_of_[static_cast<std::size_t>(m->id)] = static_cast<int>(groups_.size());
  groups_.push_back(std::move(group));
}

std::shared_ptr<const Graph> Horizontal::run(const PassOptions& options) {
  if (groups_.empty()) return nullptr;
  ir::Rebuild rebuild(graph_);
  Builder builder(rebuild.to(), options);
  // Units: a node by itself, or a group. Depth first, in the old order as far as the groups allow.
  const std::size_t num_nodes = graph_.nodes().size();
  std::vector<bool> done(num_nodes + groups_.size());
  const auto unit_of = [&](const Node* node) {
    const int g = group_of_[static_cast<std::size_t>(node->id)];
    return g < 0 ? static_cast<std::size_t>(node->id) : num_nodes + static_cast<std::size_t>(g);
  };
  const auto inputs_of = [&](std::size_t unit) {
    std::vector<Value> values;
    if (unit < num_nodes) return graph_.nodes()[unit]->operands;
    const Group& group = groups_[unit - num_nodes];
    for (const Node* m : group.members) values.insert(values.end(), m->operands.begin(), m->operands.end());
    values.insert(values.end(), group.needs.begin(), group.needs.end());
    return values;
  };
  std::vector<std::pair<std::size_t, bool>> stack;
  for (const auto& root : graph_.nodes()) {
    stack.emplace_back(unit_of(root.get()), false);
    while (!stack.empty()) {
      const auto [unit, ready] = stack.back();
      stack.pop_back();
      if (done[unit]) continue;
      if (!ready) {
        HOTLOOP_CHECK(stack.size() <= 8 * (num_nodes + 1) * (num_nodes + 1), "merged nodes depend on each other");
        stack.emplace_back(unit, true);
        for (const Value& v : inputs_of(unit))
          if (const std::size_t u = unit_of(v.node); !done[u]) stack.emplace_back(u, false);
        continue;
      }
      done[unit] = true;
      if (unit >= num_nodes)
        groups_[unit - num_nodes].emit(rebuild, builder);
      else if (graph_.nodes()[unit]->op->kind != ir::OpKind::Input)
        rebuild.copy(*graph_.nodes()[unit]);
    }
  }
  return rebuild.finish();
}

}  // namespace hotloop::passes
