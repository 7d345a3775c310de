// What no output needs, through loops: a carry is needed if its final value is, or if the next value of something
// needed reads it, to a fixpoint.
#include <algorithm>

#include "ir/rewrite.h"

namespace hotloop::ir {
namespace {

using Flags = std::vector<bool>;

struct LiveLoop {
  Flags carry, xs, consts, ys;
};

Flags mark(const Graph& graph, const Flags& outputs);

LiveLoop mark_loop(const LoopView& loop, const Flags& results) {
  const auto num_carry = static_cast<std::size_t>(loop.num_carry());
  const auto num_ys = static_cast<std::size_t>(loop.num_ys());
  LiveLoop live;
  live.carry.assign(results.begin(), results.begin() + loop.num_carry());
  live.ys.assign(results.begin() + loop.num_carry(), results.begin() + loop.num_carry() + loop.num_ys());
  Flags until_live;
  if (loop.until()) {
    const Flags marked = mark(*loop.until(), {true});
    const ValueIndex index(*loop.until());
    for (const Value& v : loop.until()->inputs()) until_live.push_back(marked[static_cast<std::size_t>(index(v))]);
    for (std::size_t i = 0; i < num_carry; ++i)
      if (until_live[i]) live.carry[i] = true;
  }
  const ValueIndex index(loop.body());
  for (;;) {
    Flags outputs = live.carry;
    outputs.insert(outputs.end(), live.ys.begin(), live.ys.begin() + static_cast<std::ptrdiff_t>(num_ys));
    const Flags marked = mark(loop.body(), outputs);
    const auto is_live = [&](Value v) { return marked[static_cast<std::size_t>(index(v))]; };
    bool grew = false;
    for (int i = 0; i < loop.num_carry(); ++i)
      if (is_live(loop.carry_in(i)) && !live.carry[static_cast<std::size_t>(i)])
        grew = live.carry[static_cast<std::size_t>(i)] = true;
    if (grew) continue;
    for (int i = 0; i < loop.num_xs(); ++i) live.xs.push_back(is_live(loop.xs_in(i)));
    for (int i = 0; i < loop.num_consts(); ++i)
      live.consts.push_back(is_live(loop.const_in(i)) ||
                            (!until_live.empty() && until_live[num_carry + static_cast<std::size_t>(i)]));
    return live;
  }
}

Flags results_of(const Node& node, const Flags& marked, const ValueIndex& index) {
  Flags results;
  for (int i = 0; i < static_cast<int>(node.types.size()); ++i)
    results.push_back(marked[static_cast<std::size_t>(index({const_cast<Node*>(&node), i}))]);
  return results;
}

// Which inputs of the graph the flagged outputs need.
Flags mark_inputs(const Graph& graph, const Flags& outputs) {
  const Flags live = mark(graph, outputs);
  const ValueIndex index(graph);
  Flags inputs;
  for (const Value& v : graph.inputs()) inputs.push_back(live[static_cast<std::size_t>(index(v))]);
  return inputs;
}

// For each value of the graph, by ValueIndex, whether one of the flagged outputs needs it.
Flags mark(const Graph& graph, const Flags& outputs) {
  const ValueIndex index(graph);
  Flags live(static_cast<std::size_t>(index.size()));
  const auto set = [&](Value v) { live[static_cast<std::size_t>(index(v))] = true; };
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i]) set(graph.outputs()[i]);
  for (std::size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = *graph.nodes()[i];
    const Flags results = results_of(node, live, index);
    if (std::ranges::none_of(results, [](bool b) { return b; })) continue;
    if (is_plain_call(node)) {
      const Flags needed = mark_inputs(*node.regions[0], results);
      for (std::size_t k = 0; k < needed.size(); ++k)
        if (needed[k]) set(node.operands[k]);
      continue;
    }
    if (node.op->kind != OpKind::Loop) {
      for (const Value& v : node.operands) set(v);
      continue;
    }
    const LoopView loop(node);
    const LiveLoop parts = mark_loop(loop, results);
    for (int k = 0; k < loop.num_carry(); ++k)
      if (parts.carry[static_cast<std::size_t>(k)]) set(loop.carry(k));
    for (int k = 0; k < loop.num_xs(); ++k)
      if (parts.xs[static_cast<std::size_t>(k)]) set(loop.xs(k));
    for (int k = 0; k < loop.num_consts(); ++k)
      if (parts.consts[static_cast<std::size_t>(k)]) set(loop.constant(k));
    if (loop.has_trip()) set(loop.trip());
  }
  return live;
}

class Sweep {
 public:
  // The graph with only the flagged inputs and outputs; the former must cover what the latter need.
  std::shared_ptr<const Graph> graph(const std::shared_ptr<const Graph>& from, const Flags& keep_inputs,
                                     const Flags& keep_outputs) {
    const bool outer = changed_;
    changed_ = false;
    std::shared_ptr<const Graph> result = rebuilt(*from, keep_inputs, keep_outputs);
    if (!changed_) result = from;  // shared regions stay shared
    changed_ = changed_ || outer;
    return result;
  }

  std::shared_ptr<Graph> rebuilt(const Graph& from, const Flags& keep_inputs, const Flags& keep_outputs) {
    const Flags live = mark(from, keep_outputs);
    const ValueIndex index(from);
    auto to = std::make_shared<Graph>(from.name());
    ValueMap map(from);
    for (std::size_t i = 0; i < from.inputs().size(); ++i) {
      if (keep_inputs[i])
        map.set(from.inputs()[i], to->add_input(from.inputs()[i].type(), from.input_name(static_cast<int>(i))));
      else
        changed_ = true;
    }
    for (const auto& node : from.nodes()) {
      if (node->op->kind == OpKind::Input) continue;
      const Flags results = results_of(*node, live, index);
      if (std::ranges::none_of(results, [](bool b) { return b; })) {
        changed_ = true;
        continue;
      }
      if (node->op->kind == OpKind::Loop) {
        loop(LoopView(*node), results, *to, map);
        continue;
      }
      if (is_plain_call(*node)) {
        call(*node, results, *to, map);
        continue;
      }
      std::vector<std::shared_ptr<const Graph>> regions;
      for (const auto& region : node->regions)
        regions.push_back(graph(region, Flags(region->inputs().size(), true), Flags(region->outputs().size(), true)));
      std::vector<Value> operands;
      operands.reserve(node->operands.size());
      for (const Value& v : node->operands) operands.push_back(map(v));
      Node* copied = to->append(*node->op, std::move(operands), node->attrs, std::move(regions), node->generation);
      for (int i = 0; i < static_cast<int>(node->types.size()); ++i) map.set(node->result(i), copied->result(i));
    }
    std::vector<Value> outputs;
    for (std::size_t i = 0; i < from.outputs().size(); ++i) {
      if (keep_outputs[i])
        outputs.push_back(map(from.outputs()[i]));
      else
        changed_ = true;
    }
    to->set_outputs(std::move(outputs));
    return to;
  }

  bool changed() const { return changed_; }

 private:
  void call(const Node& node, const Flags& results, Graph& to, ValueMap& map) {
    const Flags inputs = mark_inputs(*node.regions[0], results);
    std::vector<Value> operands;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i]) operands.push_back(map(node.operands[i]));
    Node* copied = to.append(*node.op, std::move(operands), node.attrs, {graph(node.regions[0], inputs, results)},
                             node.generation);
    int next = 0;
    for (int i = 0; i < static_cast<int>(results.size()); ++i)
      if (results[static_cast<std::size_t>(i)]) map.set({const_cast<Node*>(&node), i}, copied->result(next++));
  }

  void loop(const LoopView& loop, const Flags& results, Graph& to, ValueMap& map) {
    const LiveLoop live = mark_loop(loop, results);
    LoopDraft draft(loop);
    for (int i = 0; i < loop.num_carry(); ++i)
      if (live.carry[static_cast<std::size_t>(i)]) draft.carry.push_back(map(loop.carry(i)));
    for (int i = 0; i < loop.num_xs(); ++i)
      if (live.xs[static_cast<std::size_t>(i)]) draft.xs.push_back(map(loop.xs(i)));
    for (int i = 0; i < loop.num_consts(); ++i)
      if (live.consts[static_cast<std::size_t>(i)]) draft.consts.push_back(map(loop.constant(i)));
    if (loop.has_trip()) draft.trip = map(loop.trip());
    if (loop.node().attrs.has("laned")) {
      for (int i = 0; i < loop.num_carry(); ++i)
        if (live.carry[static_cast<std::size_t>(i)]) draft.laned.push_back(loop.laned_carry(i));
      for (int i = 0; i < loop.num_xs(); ++i)
        if (live.xs[static_cast<std::size_t>(i)]) draft.laned.push_back(loop.laned_xs(i));
      for (int i = 0; i < loop.num_consts(); ++i)
        if (live.consts[static_cast<std::size_t>(i)]) draft.laned.push_back(loop.laned_const(i));
    }
    if (loop.has_mask() && live.xs[static_cast<std::size_t>(loop.mask_t())] &&
        live.consts[static_cast<std::size_t>(loop.mask_bound())])
      draft.mask = {std::count(live.xs.begin(), live.xs.begin() + loop.mask_t(), true),
                    std::count(live.consts.begin(), live.consts.begin() + loop.mask_bound(), true),
                    loop.mask_starts_late()};
    Flags inputs = live.carry, outputs = live.carry, until_inputs = live.carry;
    inputs.insert(inputs.end(), live.xs.begin(), live.xs.end());
    inputs.insert(inputs.end(), live.consts.begin(), live.consts.end());
    outputs.insert(outputs.end(), live.ys.begin(), live.ys.end());
    until_inputs.insert(until_inputs.end(), live.consts.begin(), live.consts.end());
    draft.body = graph(loop.node().regions[0], inputs, outputs);
    if (loop.until()) draft.until = graph(loop.node().regions[1], until_inputs, {true});
    Node* node = draft.append(to);
    int next = 0;
    for (int i = 0; i < loop.num_carry(); ++i)
      if (live.carry[static_cast<std::size_t>(i)]) map.set(loop.carry_result(i), node->result(next++));
    for (int i = 0; i < loop.num_ys(); ++i)
      if (live.ys[static_cast<std::size_t>(i)]) map.set(loop.ys_result(i), node->result(next++));
    map.set(loop.count_result(), node->result(next));
  }

  bool changed_ = false;
};

}  // namespace

std::shared_ptr<Graph> eliminate_dead(const Graph& graph) {
  Sweep sweep;
  auto result = sweep.rebuilt(graph, Flags(graph.inputs().size(), true), Flags(graph.outputs().size(), true));
  return sweep.changed() ? result : nullptr;
}

}  // namespace hotloop::ir
