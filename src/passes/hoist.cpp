// Loop-invariant code leaves the loop. A lone change of index (broadcast, slice, transpose, ...) stays: it costs nothing
// where it is used, and outside it would only make what crosses larger.
#include <algorithm>

#include "passes/loop_edit.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

bool is_free_where_used(const Node& node) {
  switch (node.op->kind) {
    case OpKind::Constant:
    case OpKind::Iota:
    case OpKind::Broadcast:
    case OpKind::Reshape:
    case OpKind::Slice:
    case OpKind::Transpose:
    case OpKind::Reverse:
    case OpKind::Extent:
    case OpKind::StopGradient: return true;
    default: return false;
  }
}

class Hoist {
 public:
  Hoist(const Node& loop, ir::Rebuild& outer)
      : loop_(loop),
        outer_(outer),
        index_(loop_.body()),
        invariant_(invariant_values(loop_.body(), loop_)),
        outside_(loop_.body()),
        edit_(loop_) {}

  // False when there is nothing to hoist.
  bool run() {
    // A conditional is a loop of at most one iteration: what it guards must not run when it does not.
    if (loop_.until() && loop_.length() <= 1) return false;
    find_hoisted();
    if (std::ranges::find(hoisted_, true) == hoisted_.end()) return false;
    emit_outside();
    edit_.keep_carry(outer_);
    edit_.keep_xs(outer_);
    edit_.keep_consts(outer_);
    std::vector<std::pair<Value, int>> crossing;
    for (const Value& v : crossing_values()) crossing.emplace_back(v, edit_.add_const(outside_(v)));
    edit_.begin();
    for (const auto& [v, position] : crossing) edit_.map().set(v, edit_.const_in(position));
    for (const auto& node : loop_.body().nodes())
      if (node->op->kind != OpKind::Input && !hoisted_[id(*node)]) edit_.copy(*node);
    std::vector<Value> outputs;
    for (const Value& v : loop_.body().outputs()) outputs.push_back(edit_.map()(v));
    const Node* made = edit_.finish(outer_, std::move(outputs));
    for (int i = 0; i < static_cast<int>(made->types.size()); ++i)
      outer_.map().set({const_cast<Node*>(&loop_.node()), i}, {const_cast<Node*>(made), i});
    return true;
  }

 private:
  static std::size_t id(const Node& node) { return static_cast<std::size_t>(node.id); }
  bool invariant(Value v) const { return invariant_[static_cast<std::size_t>(index_(v))]; }

  void find_hoisted() {
    const auto& nodes = loop_.body().nodes();
    hoisted_.assign(nodes.size(), false);
    std::vector<bool> reads_const(nodes.size());
    for (const auto& node : nodes) {
      if (node->types.empty() || !invariant(node->result())) continue;
      reads_const[id(*node)] = node->op->kind == OpKind::Input ||
                               std::ranges::any_of(node->operands, [&](Value v) { return reads_const[id(*v.node)]; });
      if (node->op->kind == OpKind::Input || is_free_where_used(*node)) continue;
      // Cheap arithmetic on counters and literals is as well computed in place.
      const bool cheap = node->op->kind == OpKind::Elementwise && node->op->cost_per_element <= 2;
      hoisted_[id(*node)] = reads_const[id(*node)] || !cheap;
    }
  }

  void emit_outside() {
    const auto& nodes = loop_.body().nodes();
    std::vector<bool> wanted = hoisted_;
    for (std::size_t i = nodes.size(); i-- > 0;)
      if (wanted[i])
        for (const Value& v : nodes[i]->operands) wanted[id(*v.node)] = true;
    for (int i = 0; i < loop_.num_consts(); ++i) outside_.set(loop_.const_in(i), outer_(loop_.constant(i)));
    for (const auto& node : nodes) {
      if (!wanted[id(*node)] || node->op->kind == OpKind::Input) continue;
      std::vector<Value> operands;
      for (const Value& v : node->operands) operands.push_back(outside_(v));
      Node* copied = outer_.to().append(*node->op, std::move(operands), node->attrs, node->regions, node->generation);
      for (int i = 0; i < static_cast<int>(node->types.size()); ++i) outside_.set(node->result(i), copied->result(i));
    }
  }

  // Results of hoisted nodes that what stays behind reads.
  std::vector<Value> crossing_values() const {
    std::vector<Value> values;
    const auto visit = [&](Value v) {
      if (hoisted_[id(*v.node)] && std::ranges::find(values, v) == values.end()) values.push_back(v);
    };
    for (const auto& node : loop_.body().nodes())
      if (!hoisted_[id(*node)]) std::ranges::for_each(node->operands, visit);
    std::ranges::for_each(loop_.body().outputs(), visit);
    return values;
  }

  ir::LoopView loop_;
  ir::Rebuild& outer_;
  ir::ValueIndex index_;
  std::vector<bool> invariant_;
  ir::ValueMap outside_;  // body values -> values of the outer graph
  LoopEdit edit_;
  std::vector<bool> hoisted_;  // by node
};

std::shared_ptr<const Graph> hoist_level(const Graph& graph, const Level&) {
  return rewrite_loops(graph, [](const Node& loop, ir::Rebuild& outer) { return Hoist(loop, outer).run(); });
}

}  // namespace

Pass hoist() {
  return {"hoist", "moves loop-invariant work out of loops", true,
          [](const Graph& graph, const PassOptions&) { return rewrite_levels(graph, hoist_level); }};
}

}  // namespace hotloop::passes
