#include "transforms/split.h"

#include <algorithm>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/loop_rules.h"
#include "transforms/linear_part.h"

namespace hotloop::ir {
namespace {

// Builds a split graph in the current graph.
class Splitter {
 public:
  explicit Splitter(Graph& to) : to_(to) {}

  void add_input(const ValueType& type, const std::string& name, bool known) {
    to_.add_input(type, name);
    linear_.push_back(!known);
  }

  std::vector<Value> copy(const Graph& from, std::span<const Value> inputs) {
    ValueMap map(from);
    for (std::size_t i = 0; i < inputs.size(); ++i) map.set(from.inputs()[i], inputs[i]);
    for (const auto& node : from.nodes()) {
      if (is(*node, OpKind::Input)) continue;
      std::vector<Value> operands;
      std::vector<bool> known;
      for (const Value& v : node->operands) {
        operands.push_back(map(v));
        known.push_back(!is_linear(operands.back()));
      }
      map.set_results(*node, add(*node, operands, known));
    }
    std::vector<Value> outputs;
    for (const Value& v : from.outputs()) outputs.push_back(map(v));
    return outputs;
  }

  std::vector<bool> take_linear() {
    catch_up();
    return std::move(linear_);
  }

 private:
  std::vector<Value> add(const Node& node, const std::vector<Value>& operands, const std::vector<bool>& known) {
    const bool mixed = std::ranges::find(known, false) != known.end();
    if (mixed && is(node, OpKind::Loop)) return split_loop(node, operands, known);
    if (mixed && is(node, OpKind::Call) && node.op->name != "linear_call")  // which is linear as a whole
      return node.attrs.flag("remat") ? split_call(node, operands, known) : copy(*node.regions[0], operands);
    return results_of(*copy_node(node, operands));
  }

  bool is_linear(Value v) {
    catch_up();
    return linear_[id_of(v)];
  }
  void catch_up() {
    const auto nodes = to_.nodes();
    for (std::size_t i = linear_.size(); i < nodes.size(); ++i)
      linear_.push_back(
          std::ranges::any_of(nodes[i]->operands, [&](const Value& v) -> bool { return linear_[id_of(v)]; }));
  }

  Graph& to_;
  std::vector<bool> linear_;
};

}  // namespace

Split split(const Graph& graph, const std::vector<bool>& known_inputs) {
  const auto to = std::make_shared<Graph>(graph.name());
  TraceScope scope(*to);
  Splitter splitter(*to);
  for (std::size_t i = 0; i < known_inputs.size(); ++i)
    splitter.add_input(graph.inputs()[i].type(), graph.input_name(static_cast<int>(i)), known_inputs[i]);
  to->set_outputs(splitter.copy(graph, to->inputs()));
  return {to, splitter.take_linear()};
}

bool is_cheap(const Node& node) {
  switch (node.op->kind) {
    case OpKind::Constant:
    case OpKind::Iota:
    case OpKind::Extent:
    case OpKind::Broadcast:
    case OpKind::Reshape:
    case OpKind::Transpose:
    case OpKind::Concat: return true;
    default: return false;
  }
}

std::vector<Value> copy_needed(const Graph& from, ValueMap& map, std::span<const Value> values, int generation_bump) {
  std::vector<bool> needed(from.nodes().size());
  const auto need = [&](Value v) {
    if (!map.find(v).defined()) needed[id_of(v)] = true;
  };
  for (const Value& v : values) need(v);
  for (auto it = from.nodes().rbegin(); it != from.nodes().rend(); ++it)
    if (needed[static_cast<std::size_t>((*it)->id)])
      for (const Value& v : (*it)->operands) need(v);
  for (const auto& node : from.nodes()) {
    if (!needed[static_cast<std::size_t>(node->id)]) continue;
    HOTLOOP_CHECK(!is(*node, OpKind::Input), "an input is needed but not given");
    std::vector<Value> operands;
    for (const Value& v : node->operands) operands.push_back(map(v));
    Node* copied = copy_node(*node, operands, is_cheap(*node) ? 0 : generation_bump);
    for (int i = 0; i < static_cast<int>(node->types.size()); ++i)
      if (!map.find(node->result(i)).defined()) map.set(node->result(i), copied->result(i));
  }
  std::vector<Value> copies;
  for (const Value& v : values) copies.push_back(map(v));
  return copies;
}

std::vector<Value> split_call(const Node& node, std::span<const Value> operands, const std::vector<bool>& known) {
  const Split body = split(*node.regions[0], known);
  const Graph& graph = *body.graph;
  const std::string& name = node.attrs.get<std::string>("name");
  // A call of `fn` on the operands flagged in `wanted`.
  const auto call_part = [&](const std::vector<bool>& wanted, bool remat, const auto& fn) {
    std::vector<Value> given;
    std::vector<ValueType> types;
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (wanted[i]) {
        given.push_back(operands[i]);
        types.push_back(operands[i].type());
      }
    const auto region = trace(
        [&](std::span<const Value> inputs) {
          ValueMap map(graph);
          std::size_t next = 0;
          for (std::size_t i = 0; i < operands.size(); ++i)
            if (wanted[i]) map.set(graph.inputs()[i], inputs[next++]);
          return fn(map);
        },
        types, node.regions[0]->name());
    return call(region, given, name, nullptr, remat);
  };

  std::vector<Value> known_outputs, linear_outputs;
  for (const Value& v : graph.outputs()) (body.is_linear(v) ? linear_outputs : known_outputs).push_back(v);
  std::vector<Value> known_results, linear_results;
  if (!known_outputs.empty())
    known_results = call_part(known, true, [&](ValueMap& map) { return copy_needed(graph, map, known_outputs); });
  if (!linear_outputs.empty()) {
    const LinearPart part{body, linear_outputs};
    std::vector<bool> wanted(operands.size());
    const auto reads = part.reads([](Value v) { return is(*v.node, OpKind::Input) ? Source::Given : Source::Copy; });
    for (std::size_t i = 0; i < operands.size(); ++i)
      wanted[i] = !known[i] || std::ranges::find(reads, graph.inputs()[i]) != reads.end();
    linear_results = call_part(wanted, true, [&](ValueMap& map) { return part.copy(map); });
  }
  std::vector<Value> results;
  std::size_t next_known = 0, next_linear = 0;
  for (const Value& v : graph.outputs())
    results.push_back(body.is_linear(v) ? linear_results[next_linear++] : known_results[next_known++]);
  return results;
}

}  // namespace hotloop::ir
