#include "passes/loop_edit.h"

#include <algorithm>

#include "hotloop/error.h"

namespace hotloop::passes {

void LoopEdit::keep_carry(const ir::Rebuild& outer) {
  for (int i = 0; i < loop_.num_carry(); ++i) add_carry(outer(loop_.carry(i)), loop_.carry_in(i));
}

void LoopEdit::keep_xs(const ir::Rebuild& outer) {
  for (int i = 0; i < loop_.num_xs(); ++i) add_xs(outer(loop_.xs(i)), loop_.xs_in(i));
}

void LoopEdit::keep_consts(const ir::Rebuild& outer) {
  for (int i = 0; i < loop_.num_consts(); ++i) add_const(outer(loop_.constant(i)), loop_.const_in(i));
}

void LoopEdit::begin() {
  const Graph& old = loop_.body();
  body_ = std::make_shared<Graph>(old.name());
  for (const auto* list : {&carry_, &xs_, &consts_}) {
    for (const Entry& e : *list) {
      ValueType type = e.outer.type();
      if (list == &xs_) type.shape = type.shape.without(0);
      std::string name;
      if (e.old.defined()) {
        const auto position = std::ranges::find(old.inputs(), e.old) - old.inputs().begin();
        name = old.input_name(static_cast<int>(position));
      }
      const Value in = body_->add_input(type, name);
      if (e.old.defined()) map_.set(e.old, in);
    }
  }
}

void LoopEdit::copy(const Node& node) {
  std::vector<Value> operands;
  operands.reserve(node.operands.size());
  for (const Value& v : node.operands) operands.push_back(map_(v));
  Node* copied = body_->append(*node.op, std::move(operands), node.attrs, node.regions, node.generation);
  for (int i = 0; i < static_cast<int>(node.types.size()); ++i)
    map_.set({const_cast<Node*>(&node), i}, copied->result(i));
}

void LoopEdit::copy_rest() {
  for (const auto& node : loop_.body().nodes()) {
    if (node->op->kind == ir::OpKind::Input || map_.find(node->result()).defined()) continue;
    // A node that reads what the edit removed is itself not needed any more.
    if (std::ranges::all_of(node->operands, [&](Value v) { return map_.find(v).defined(); })) copy(*node);
  }
}

std::shared_ptr<const Graph> LoopEdit::until() {
  const Graph& old = *loop_.until();
  auto graph = std::make_shared<Graph>(old.name());
  ir::ValueMap map(old);
  for (const auto* list : {&carry_, &consts_}) {
    for (const Entry& e : *list) {
      const Value in = graph->add_input(e.outer.type());
      if (!e.old.defined()) continue;
      const auto position =
          static_cast<int>(std::ranges::find(loop_.body().inputs(), e.old) - loop_.body().inputs().begin());
      const int first_const = loop_.num_carry() + loop_.num_xs();
      if (position < loop_.num_carry())
        map.set(loop_.until_carry_in(position), in);
      else if (position >= first_const)
        map.set(loop_.until_const_in(position - first_const), in);
    }
  }
  for (const auto& node : old.nodes()) {
    if (node->op->kind == ir::OpKind::Input) continue;
    std::vector<Value> operands;
    for (const Value& v : node->operands) operands.push_back(map(v));
    Node* copied = graph->append(*node->op, std::move(operands), node->attrs, node->regions, node->generation);
    for (int i = 0; i < static_cast<int>(node->types.size()); ++i) map.set(node->result(i), copied->result(i));
  }
  graph->set_outputs({map(old.outputs()[0])});
  return graph;
}

Node* LoopEdit::finish(ir::Rebuild& outer, std::vector<Value> outputs) {
  ir::LoopDraft draft(loop_);
  for (const Entry& e : carry_) draft.carry.push_back(e.outer);
  for (const Entry& e : xs_) draft.xs.push_back(e.outer);
  for (const Entry& e : consts_) draft.consts.push_back(e.outer);
  if (loop_.has_trip()) draft.trip = outer(loop_.trip());
  body_->set_outputs(std::move(outputs));
  draft.body = body_;
  if (loop_.until()) draft.until = until();
  return draft.append(outer.to());
}

std::shared_ptr<const Graph> rewrite_loops(const Graph& graph,
                                           const std::function<bool(const Node& loop, ir::Rebuild& outer)>& rewrite) {
  const auto is_loop = [](const auto& node) { return node->op->kind == ir::OpKind::Loop; };
  if (std::ranges::none_of(graph.nodes(), is_loop)) return nullptr;
  ir::Rebuild rebuild(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == ir::OpKind::Input) continue;
    if (is_loop(node) && rewrite(*node, rebuild))
      changed = true;
    else
      rebuild.copy(*node);
  }
  return changed ? rebuild.finish() : nullptr;
}

}  // namespace hotloop::passes
