#include "ir/interpreters.h"

#include <algorithm>
#include <tuple>

#include "hotloop/error.h"
#include "ir/rewrite.h"

namespace hotloop::ir {
namespace {

bool any_defined(std::span<const Value> values) {
  return std::ranges::any_of(values, [](const Value& v) { return v.defined(); });
}

// What the operands of a node became; undefined where nothing was set.
std::vector<Value> mapped(const Node& node, const ValueMap& map) {
  std::vector<Value> operands;
  for (const Value& v : node.operands) operands.push_back(map.find(v));
  return operands;
}

std::vector<Value> results_of(Node* node) {
  std::vector<Value> results;
  for (int i = 0; i < static_cast<int>(node->types.size()); ++i) results.push_back(node->result(i));
  return results;
}

Value add(Value a, Value b) {
  if (!a.defined()) return b;
  return current_graph().append(op("add"), {a, b})->result();
}

}  // namespace

std::vector<Dual> push_forward(const Graph& graph, std::span<const Dual> inputs) {
  HOTLOOP_CHECK(inputs.size() == graph.inputs().size(), "push_forward: one value an input");
  ValueMap primal(graph), tangent(graph);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value input = graph.inputs()[i];
    primal.set(input, inputs[i].primal);
    if (is_float(input.dtype())) tangent.set(input, inputs[i].tangent);
  }
  for (const auto& node : graph.nodes()) {
    if (is(*node, OpKind::Input)) continue;
    const std::vector<Value> primals = mapped(*node, primal), tangents = mapped(*node, tangent);
    std::vector<Value> outputs, output_tangents;
    if (any_defined(tangents) && node->op->jvp_with_primal) {
      std::tie(outputs, output_tangents) = node->op->jvp_with_primal({*node, primals, {}, tangents});
    } else {
      Node* copy = copy_node(*node, primals);
      for (int i = 0; i < static_cast<int>(copy->types.size()); ++i) outputs.push_back(copy->result(i));
      if (any_defined(tangents) && node->op->jvp) output_tangents = node->op->jvp({*node, primals, outputs, tangents});
    }
    for (int i = 0; i < static_cast<int>(outputs.size()); ++i) {
      const Value result{node.get(), i};
      const auto k = static_cast<std::size_t>(i);
      primal.set(result, outputs[k]);
      if (k >= output_tangents.size() || !output_tangents[k].defined() || !is_float(result.dtype())) continue;
      HOTLOOP_CHECK(output_tangents[k].type() == result.type(),
                    "the jvp rule of " + node->op->name + " gives a tangent of type " +
                        output_tangents[k].type().str() + " for a result of type " + result.type().str());
      tangent.set(result, output_tangents[k]);
    }
  }
  std::vector<Dual> outputs;
  for (const Value& v : graph.outputs()) outputs.push_back({primal.find(v), tangent.find(v)});
  return outputs;
}

std::vector<bool> dependent_outputs(const Graph& graph, const std::vector<bool>& inputs) {
  std::vector<bool> depends(graph.nodes().size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    depends[static_cast<std::size_t>(graph.inputs()[i].node->id)] = inputs[i];
  for (const auto& node : graph.nodes())
    for (const Value& v : node->operands)
      if (depends[static_cast<std::size_t>(v.node->id)]) depends[static_cast<std::size_t>(node->id)] = true;
  std::vector<bool> outputs;
  for (const Value& v : graph.outputs()) outputs.push_back(depends[static_cast<std::size_t>(v.node->id)]);
  return outputs;
}

std::vector<Value> pull_back(const Graph& graph, std::span<const Value> inputs, std::span<const Value> cotangents,
                             std::span<const Value> seeds) {
  HOTLOOP_CHECK(inputs.size() == graph.inputs().size(), "pull_back: one value an input");
  HOTLOOP_CHECK(cotangents.size() == graph.outputs().size(), "pull_back: one cotangent an output");
  const std::size_t num_nodes = graph.nodes().size();
  std::vector<bool> linear(num_nodes), needed(num_nodes);
  ValueMap constant(graph), cotangent(graph);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value input = graph.inputs()[i];
    linear[static_cast<std::size_t>(input.node->id)] = !inputs[i].defined();
    constant.set(input, inputs[i]);
    if (!inputs[i].defined() && i < seeds.size()) cotangent.set(input, seeds[i]);
  }
  for (const auto& node : graph.nodes())
    for (const Value& v : node->operands)
      if (linear[static_cast<std::size_t>(v.node->id)]) linear[static_cast<std::size_t>(node->id)] = true;

  // What the linear nodes that matter read of the others is computed first.
  std::vector<bool> reached(num_nodes);
  for (std::size_t i = 0; i < cotangents.size(); ++i)
    if (cotangents[i].defined()) reached[static_cast<std::size_t>(graph.outputs()[i].node->id)] = true;
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) {
    const auto id = static_cast<std::size_t>((*it)->id);
    if (!(linear[id] ? reached[id] : needed[id])) continue;
    for (const Value& v : (*it)->operands) {
      const auto operand = static_cast<std::size_t>(v.node->id);
      (linear[operand] ? reached : needed)[operand] = true;
    }
  }
  for (const auto& node : graph.nodes()) {
    const auto id = static_cast<std::size_t>(node->id);
    if (is(*node, OpKind::Input) || linear[id] || !needed[id]) continue;
    constant.set_results(*node, results_of(copy_node(*node, mapped(*node, constant))));
  }

  const auto accumulate = [&](Value target, Value addend) {
    if (!addend.defined() || !linear[static_cast<std::size_t>(target.node->id)]) return;
    HOTLOOP_CHECK(addend.type() == target.type(), "a cotangent has type " + addend.type().str() + " instead of " +
                                                      target.type().str() + ", that of its value");
    cotangent.set(target, add(cotangent.find(target), addend));
  };
  for (std::size_t i = 0; i < cotangents.size(); ++i) accumulate(graph.outputs()[i], cotangents[i]);
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) {
    const Node& node = **it;
    if (is(node, OpKind::Input) || !linear[static_cast<std::size_t>(node.id)]) continue;
    std::vector<Value> results;
    for (int i = 0; i < static_cast<int>(node.types.size()); ++i) results.push_back(cotangent.find({it->get(), i}));
    if (!any_defined(results)) continue;
    HOTLOOP_CHECK(static_cast<bool>(node.op->transpose), "op " + node.op->name + " in a linear graph has no transpose");
    const std::vector<Value> operands = mapped(node, constant);
    const std::vector<Value> given = node.op->transpose({node, operands, results});
    HOTLOOP_CHECK(given.size() == operands.size(), "the transpose of " + node.op->name + ": one cotangent an operand");
    for (std::size_t i = 0; i < given.size(); ++i) accumulate(node.operands[i], given[i]);
  }
  std::vector<Value> results;
  for (const Value& v : graph.inputs())
    results.push_back(linear[static_cast<std::size_t>(v.node->id)] ? cotangent.find(v) : Value{});
  return results;
}

std::vector<Batched> push_batch(const Graph& graph, std::span<const Batched> inputs, std::int64_t size) {
  HOTLOOP_CHECK(inputs.size() == graph.inputs().size(), "push_batch: one value an input");
  ValueMap value(graph);
  std::vector<std::vector<bool>> batched(graph.nodes().size());
  for (const auto& node : graph.nodes()) batched[static_cast<std::size_t>(node->id)].resize(node->types.size());
  const auto flag = [&](Value v) -> std::vector<bool>::reference {
    return batched[static_cast<std::size_t>(v.node->id)][static_cast<std::size_t>(v.index)];
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    value.set(graph.inputs()[i], inputs[i].value);
    flag(graph.inputs()[i]) = inputs[i].batched;
  }
  for (const auto& node : graph.nodes()) {
    if (is(*node, OpKind::Input)) continue;
    std::vector<Batched> operands;
    bool any = false;
    for (const Value& v : node->operands) {
      operands.push_back({value.find(v), flag(v)});
      any = any || flag(v);
    }
    if (!any) {
      value.set_results(*node, results_of(copy_node(*node, mapped(*node, value))));
      continue;
    }
    HOTLOOP_CHECK(static_cast<bool>(node->op->batch), "op " + node->op->name + " has no batching rule");
    const std::vector<Batched> results = node->op->batch({*node, operands, size});
    HOTLOOP_CHECK(results.size() == node->types.size(),
                  "the batching rule of " + node->op->name + ": one value a result");
    for (int i = 0; i < static_cast<int>(results.size()); ++i) {
      const Value result{node.get(), i};
      const Batched& given = results[static_cast<std::size_t>(i)];
      ValueType wanted = result.type();
      if (given.batched) wanted.shape = wanted.shape.with_inserted(0, size);
      HOTLOOP_CHECK(given.value.type() == wanted, "the batching rule of " + node->op->name + " gives " +
                                                      given.value.type().str() + " instead of " + wanted.str());
      value.set(result, given.value);
      flag(result) = given.batched;
    }
  }
  std::vector<Batched> outputs;
  for (const Value& v : graph.outputs()) outputs.push_back({value.find(v), flag(v)});
  return outputs;
}

Value materialize_batch(const Batched& value, std::int64_t size) {
  if (value.batched) return value.value;
  std::vector<std::int64_t> axes;
  for (int i = 0; i < value.value.rank(); ++i) axes.push_back(i + 1);
  return current_graph()
      .append(op("broadcast"), {value.value},
              {{"shape", value.value.shape().with_inserted(0, size).vec()}, {"axes", axes}})
      ->result();
}

}  // namespace hotloop::ir
