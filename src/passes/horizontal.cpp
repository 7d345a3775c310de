#include "passes/horizontal.h"

#include <algorithm>

#include "hotloop/error.h"

namespace hotloop::passes {

Horizontal::Horizontal(const Graph& graph)
    : graph_(graph), group_of_(graph.nodes().size(), -1), readers_(graph.nodes().size()) {
  for (const auto& node : graph.nodes()) {
    for (const Value& v : node->operands) readers_[static_cast<std::size_t>(v.node->id)].push_back(node.get());
    order_.push_back(position_.size());
    position_.push_back(position_.size());
  }
}

std::size_t Horizontal::unit_of(const Node* node) const {
  const int g = group_of_[static_cast<std::size_t>(node->id)];
  return g < 0 ? static_cast<std::size_t>(node->id) : graph_.nodes().size() + static_cast<std::size_t>(g);
}

std::vector<const Node*> Horizontal::members_of(std::size_t unit) const {
  const std::size_t num_nodes = graph_.nodes().size();
  if (unit < num_nodes) return {graph_.nodes()[unit].get()};
  return groups_[unit - num_nodes].members;
}

std::vector<Value> Horizontal::inputs_of(std::size_t unit) const {
  std::vector<Value> values;
  for (const Node* m : members_of(unit)) values.insert(values.end(), m->operands.begin(), m->operands.end());
  if (unit >= graph_.nodes().size()) {
    const std::vector<Value>& needs = groups_[unit - graph_.nodes().size()].needs;
    values.insert(values.end(), needs.begin(), needs.end());
  }
  return values;
}

bool Horizontal::independent(const std::vector<const Node*>& members, const std::vector<Value>& needs) const {
  std::size_t first = no_unit;
  for (const Node* m : members) first = std::min(first, position_of(m));
  std::set<std::size_t> seen;
  std::vector<const Node*> stack;
  const auto push = [&](const Node* node) {
    // What comes before every member depends on none.
    if (position_of(node) >= first && seen.insert(unit_of(node)).second) stack.push_back(node);
  };
  for (const Node* m : members)
    for (const Value& v : m->operands) push(v.node);
  for (const Value& v : needs) push(v.node);
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (std::ranges::find(members, node) != members.end()) return false;
    for (const Value& v : inputs_of(unit_of(node))) push(v.node);
  }
  return true;
}

Horizontal::Growing::Growing(const Horizontal& merge, const std::vector<const Node*>& candidates)
    : merge_(merge), first_(no_unit), last_(0) {
  for (const Node* node : candidates) {
    first_ = std::min(first_, merge.position_of(node));
    last_ = std::max(last_, merge.position_of(node));
  }
}

bool Horizontal::Growing::add(const Node* node) {
  if (above_.contains(node) || below_.contains(node)) return false;
  std::vector<const Node*> stack;
  const auto mark = [&](std::set<const Node*>& side, const Node* found) {
    const std::size_t at = merge_.position_of(found);
    if (at < first_ || at > last_ || side.contains(found)) return;
    for (const Node* m : merge_.members_of(merge_.unit_of(found))) side.insert(m);
    stack.push_back(found);
  };
  stack.push_back(node);
  while (!stack.empty()) {
    const std::size_t unit = merge_.unit_of(stack.back());
    stack.pop_back();
    for (const Value& v : merge_.inputs_of(unit)) mark(above_, v.node);
  }
  stack.push_back(node);
  while (!stack.empty()) {
    const std::size_t unit = merge_.unit_of(stack.back());
    stack.pop_back();
    for (const Node* m : merge_.members_of(unit))
      for (const Node* reader : merge_.readers_[static_cast<std::size_t>(m->id)]) mark(below_, reader);
  }
  return true;
}

void Horizontal::accept(Group group) {
  std::size_t first = no_unit, last = 0;
  for (const Node* m : group.members) {
    first = std::min(first, position_of(m));
    last = std::max(last, position_of(m));
    for (const Value& v : group.needs) readers_[static_cast<std::size_t>(v.node->id)].push_back(m);
  }
  for (const Value& v : group.needs) last = std::max(last, position_of(v.node));
  const std::size_t unit = graph_.nodes().size() + groups_.size();
  for (const Node* m : group.members) group_of_[static_cast<std::size_t>(m->id)] = static_cast<int>(groups_.size());
  groups_.push_back(std::move(group));
  position_.push_back(first);
  // Within the places of the group and what it reads: first what does not depend on it, then the group, then what does.
  std::vector<std::size_t> before, after;
  std::set<std::size_t> dependent = {unit};
  for (std::size_t at = first; at <= last; ++at) {
    const std::size_t u = order_[at];
    if (u == no_unit || (u < graph_.nodes().size() && unit_of(graph_.nodes()[u].get()) == unit)) continue;
    const auto inputs = inputs_of(u);
    if (std::ranges::any_of(inputs, [&](const Value& v) { return dependent.contains(unit_of(v.node)); })) {
      dependent.insert(u);
      after.push_back(u);
    } else {
      before.push_back(u);
    }
  }
  std::fill(order_.begin() + static_cast<std::ptrdiff_t>(first), order_.begin() + static_cast<std::ptrdiff_t>(last) + 1,
            no_unit);
  std::size_t at = first;
  const auto place = [&](std::size_t u) {
    order_[at] = u;
    position_[u] = at++;
  };
  for (const std::size_t u : before) place(u);
  place(unit);
  for (const std::size_t u : after) place(u);
}

std::shared_ptr<const Graph> Horizontal::run(const PassOptions& options) {
  if (groups_.empty()) return nullptr;
  ir::Rebuild rebuild(graph_);
  Builder builder(rebuild.to(), options);
  // Depth first, in the old order as far as the groups allow.
  const std::size_t num_nodes = graph_.nodes().size();
  std::vector<bool> done(num_nodes + groups_.size());
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
