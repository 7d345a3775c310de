// Products that share a factor and are added up are one product of a sum: a W + b W is (a + b) W, and x^T a + x^T b is x^T (a + b). Derivatives
// make such sums where a program reads parts of a product that it wrote once for each, as gates that are sliced one by one are: their slopes, each
// in its place among zeros, add up to what the slope of one wide product is.
//
// Where a loop adds up reductions over the same axes (the slope of a bias) of what is not kept, these are one reduction of a sum, as products with ones would be.
//
// The sum costs nothing where its terms are computed here, and takes then the place of what each product would read. What lies in memory is left alone: a
// pass over that may cost more than a narrow product saves, and products with what is known before a loop leave it by themselves.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "ir/equality.h"
#include "passes/builder.h"
#include "passes/equal_nodes.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

bool is_add(const Node& node) {
  return node.op->kind == OpKind::Elementwise && node.op->scalar == ir::ScalarOp::Add &&
         is_float(node.types[0].dtype) && !keeps_grouping(node);
}
Value result_of(const Node* node) { return const_cast<Node*>(node)->result(); }

// Whether the numbers of v are computed on this level, so that more can be added to them on the way.
bool is_computed(Value v) {
  switch (v.node->op->kind) {
    case OpKind::Input:
    case OpKind::Constant:
    case OpKind::Loop:
    case OpKind::Call: return false;
    case OpKind::Reshape:
    case OpKind::Transpose:
    case OpKind::Broadcast:
    case OpKind::Slice:
    case OpKind::Reverse:
    case OpKind::StopGradient: return is_computed(v.node->operands[0]);
    default: return true;
  }
}

// Terms of one sum that become one: products with one factor in common, or reductions.
struct Group {
  std::vector<const Node*> members;
  std::size_t varied;  // the operand in which they differ
};

class FactorDots {
 public:
  FactorDots(const Graph& graph, const Level& level, const PassOptions& options)
      : graph_(graph), level_(level), uses_(graph), index_(graph), rebuild_(graph), builder_(rebuild_.to(), options) {}

  std::shared_ptr<const Graph> run() {
    bool changed = false;
    for (const auto& node : graph_.nodes()) {
      if (node->op->kind == OpKind::Input) continue;
      if (is_add(*node) && !is_inner(*node) && join(*node))
        changed = true;
      else
        rebuild_.copy(*node);
    }
    return changed ? rebuild_.finish() : nullptr;
  }

 private:
  using Terms = std::vector<Value>;

  bool invariant(Value v) const { return level_.invariant[static_cast<std::size_t>(index_(v))]; }
  bool is_used_once(Value v) const { return uses_.count(v) == 1 && !uses_.is_output(v); }

  // Whether an addition is part of the tree of another one.
  bool is_inner(const Node& add) const {
    const Value v = result_of(&add);
    if (!is_used_once(v)) return false;
    const Node& user = *uses_.of(v)[0].node;
    return is_add(user) && user.generation == add.generation && invariant(result_of(&user)) == invariant(v);
  }

  void collect(const Node& add, Terms& terms) const {
    for (const Value& v : add.operands) {
      if (is_add(*v.node) && is_inner(*v.node))
        collect(*v.node, terms);
      else
        terms.push_back(v);
    }
  }

  bool join(const Node& root) {
    Terms terms;
    collect(root, terms);
    std::map<const Node*, Group> groups;  // by the first member
    std::set<const Node*> taken;
    const bool accumulates = is_accumulation(root, terms);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      if (taken.contains(terms[i].node)) continue;
      const Terms later(terms.begin() + static_cast<std::ptrdiff_t>(i) + 1, terms.end());
      std::optional<Group> best;
      for (const std::size_t varied : {0U, 1U}) {
        Group group = group_of(terms[i], later, varied, accumulates);
        std::erase_if(group.members, [&](const Node* member) { return taken.contains(member); });
        if (group.members.size() > (best ? best->members.size() : 1)) best = std::move(group);
      }
      if (!best) continue;
      taken.insert(best->members.begin(), best->members.end());
      groups.emplace(terms[i].node, *std::move(best));
    }
    if (groups.empty()) return false;
    builder_.set_generation(root.generation);
    rebuild_.map().set(result_of(&root), *sum_below(root, groups, taken));
    return true;
  }

  // What becomes one with `term` if the operand `varied` may differ, `term` first.
  Group group_of(Value term, const Terms& others, std::size_t varied, bool accumulates) const {
    const Node& first = *term.node;
    if (!may_join(term, varied, first, accumulates)) return {{}, varied};
    Group group{{&first}, varied};
    for (const Value& v : others)
      if (may_join(v, varied, first, accumulates)) group.members.push_back(v.node);
    return group;
  }

  bool may_join(Value term, std::size_t varied, const Node& first, bool accumulates) const {
    const Node& node = *term.node;
    if (node.op != first.op || !is_used_once(term) || node.generation != first.generation ||
        varied >= node.operands.size())
      return false;
    if (node.op->kind != OpKind::Dot && !(accumulates && node.op->name == "reduce_sum" && !is_kept(node.operands[0])))
      return false;
    for (std::size_t k = 0; k < node.operands.size(); ++k)
      if (k == varied ? node.operands[k].type() != first.operands[k].type() : node.operands[k] != first.operands[k])
        return false;
    return ir::same_attrs(node.attrs, first.attrs) && invariant(term) == invariant(result_of(&first)) &&
           is_computed(node.operands[varied]);
  }

  // What a product reads is kept for all steps and reduced together with it, which costs no more than adding it to other terms in every step. A loop
  // that may end early takes fewer steps than there are.
  bool is_kept(Value v) const {
    const ir::LoopView loop(*level_.loop);
    return is_read_by_dot(v) && !loop.until() && !loop.has_trip();
  }
  bool is_read_by_dot(Value v) const {
    return std::ranges::any_of(uses_.of(v), [](const ir::Use& use) { return use.node->op->kind == OpKind::Dot; });
  }

  // Whether the sum is a carry of a loop that only accumulates, whose terms are reduced after the loop (defer_products).
  bool is_accumulation(const Node& root, const Terms& terms) const {
    if (level_.loop == nullptr) return false;
    const ir::LoopView loop(*level_.loop);
    for (int i = 0; i < loop.num_carry(); ++i)
      if (loop.carry_out(i) == result_of(&root))
        return uses_.count(loop.carry_in(i)) == 1 && std::ranges::find(terms, loop.carry_in(i)) != terms.end();
    return false;
  }

  // The sum of the terms below an addition, each group where its first member was; none where all are added up elsewhere.
  std::optional<Value> sum_below(const Node& add, const std::map<const Node*, Group>& groups,
                                 const std::set<const Node*>& taken) {
    std::optional<Value> sum;
    for (const Value& v : add.operands) {
      std::optional<Value> term;
      if (is_add(*v.node) && is_inner(*v.node))
        term = sum_below(*v.node, groups, taken);
      else if (const auto group = groups.find(v.node); group != groups.end())
        term = joined(group->second);
      else if (!taken.contains(v.node))
        term = rebuild_(v);
      if (term) sum = sum ? builder_.add(*sum, *term) : *term;
    }
    return sum;
  }

  Value joined(const Group& group) {
    const Node& first = *group.members[0];
    std::vector<Value> operands = rebuild_.operands(first);
    Value& varied = operands[group.varied];
    for (std::size_t i = 1; i < group.members.size(); ++i)
      varied = builder_.add(varied, rebuild_(group.members[i]->operands[group.varied]));
    return builder_.make(*first.op, operands, first.attrs);
  }

  const Graph& graph_;
  const Level& level_;
  ir::Uses uses_;
  ir::ValueIndex index_;
  ir::Rebuild rebuild_;
  Builder builder_;
};

}  // namespace

Pass factor_dots() {
  return {"factor_dots", "products that share a factor and are added up are one product of a sum", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(
                graph, [&](const Graph& g, const Level& level) { return FactorDots(g, level, options).run(); },
                options.bound);
          }};
}

}  // namespace hotloop::passes
