#include <algorithm>

#include "hotloop/error.h"
#include "ir/op_def.h"

namespace hotloop::ir {
namespace {

[[noreturn]] void broken(const Graph& graph, const Node* node, const std::string& rule) {
  std::string text = "graph '" + graph.name() + "'";
  if (node != nullptr)
    text += ", node " + std::to_string(node->id) + (node->op != nullptr ? " (" + node->op->name + ")" : "");
  throw InternalError(__FILE__, __LINE__, text + ": " + rule);
}

std::string text_of(const std::vector<ValueType>& types) {
  std::string s = "(";
  for (std::size_t i = 0; i < types.size(); ++i) s += (i ? ", " : "") + types[i].str();
  return s + ")";
}

bool is_result_of(const Graph& graph, Value v, int before) {
  if (!v.defined() || v.node->graph != &graph || v.node->id < 0 || v.node->id >= before) return false;
  if (graph.nodes()[static_cast<std::size_t>(v.node->id)].get() != v.node) return false;
  return v.index >= 0 && v.index < static_cast<int>(v.node->types.size());
}

void expect_types(const Graph& graph, const Node& node, const std::string& what, const std::vector<ValueType>& wanted,
                  const std::vector<ValueType>& got) {
  if (wanted != got) broken(graph, &node, what + " must have types " + text_of(wanted) + ", not " + text_of(got));
}

void verify_loop(const Graph& graph, const Node& node) {
  const auto num_carry = static_cast<std::size_t>(node.attrs.integer("num_carry"));
  const auto num_xs = static_cast<std::size_t>(node.attrs.integer("num_xs"));
  const auto num_consts = static_cast<std::size_t>(node.attrs.integer("num_consts"));
  const std::int64_t length = node.attrs.integer("length");
  const std::size_t has_trip = node.attrs.flag("has_trip") ? 1 : 0;
  if (node.operands.size() != num_carry + num_xs + num_consts + has_trip)
    broken(graph, &node, "the operands must be carry, xs, consts and the trip count");
  if (node.regions.empty() || node.regions.size() > 2) broken(graph, &node, "a loop has a body and perhaps an until");
  if (length < 0) broken(graph, &node, "the length must not be negative");
  std::vector<ValueType> carry, body_inputs, until_inputs;
  for (std::size_t i = 0; i < node.operands.size() - has_trip; ++i) {
    ValueType t = node.operands[i].type();
    if (i >= num_carry && i < num_carry + num_xs) {
      if (t.shape.rank() == 0 || t.shape[0] != length) broken(graph, &node, "xs must have the length of the loop");
      t.shape = t.shape.without(0);
    } else {
      until_inputs.push_back(t);
    }
    if (i < num_carry) carry.push_back(t);
    body_inputs.push_back(t);
  }
  const Graph& body = *node.regions[0];
  expect_types(graph, node, "the body's inputs", body_inputs, body.input_types());
  std::vector<ValueType> outputs = body.output_types();
  if (outputs.size() < num_carry) broken(graph, &node, "the body must return every carry");
  if (node.types.size() != outputs.size() + 1) broken(graph, &node, "the results are carry, ys and the count");
  outputs.resize(num_carry);
  expect_types(graph, node, "the body's carry", carry, outputs);
  if (node.regions.size() == 2) {
    expect_types(graph, node, "the until region's inputs", until_inputs, node.regions[1]->input_types());
    const std::vector<ValueType> result = node.regions[1]->output_types();
    if (result.size() != 1 || result[0].dtype != DType::Bool) broken(graph, &node, "until must return one bool");
  }
}

void verify_call(const Graph& graph, const Node& node) {
  if (node.regions.empty()) broken(graph, &node, "a call has a body");
  std::vector<ValueType> operands;
  for (const Value& v : node.operands) operands.push_back(v.type());
  expect_types(graph, node, "the body's inputs", operands, node.regions[0]->input_types());
  expect_types(graph, node, "the results", node.regions[0]->output_types(), node.types);
}

void verify_node(const Graph& graph, const Node& node, int position) {
  if (node.op == nullptr) broken(graph, nullptr, "node " + std::to_string(position) + " has no op");
  if (node.id != position) broken(graph, &node, "its id must be its position, " + std::to_string(position));
  if (node.graph != &graph) broken(graph, &node, "it must belong to this graph");
  std::vector<ValueType> operand_types;
  operand_types.reserve(node.operands.size());
  for (const Value& v : node.operands) {
    if (!is_result_of(graph, v, position))
      broken(graph, &node, "every operand must be a result of an earlier node of this graph");
    operand_types.push_back(v.type());
  }
  for (const auto& region : node.regions) {
    if (region == nullptr) broken(graph, &node, "a region is missing");
    verify(*region);
  }
  if (node.op->kind == OpKind::Loop) verify_loop(graph, node);
  if (node.op->kind == OpKind::Call) verify_call(graph, node);
  std::vector<ValueType> inferred;
  try {
    inferred = node.op->infer({operand_types, node.attrs, node.regions, node.op->name});
  } catch (const UserError& error) {
    broken(graph, &node, std::string("its operands do not fit: ") + error.what());
  }
  if (inferred != node.types)
    broken(graph, &node, "its types are " + text_of(node.types) + ", but " + text_of(inferred) + " is inferred");
}

}  // namespace

void verify(const Graph& graph) {
  int num_inputs = 0;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = *graph.nodes()[i];
    verify_node(graph, node, static_cast<int>(i));
    num_inputs += node.op->kind == OpKind::Input;
  }
  const int n = static_cast<int>(graph.nodes().size());
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    const Value v = graph.inputs()[i];
    if (!is_result_of(graph, v, n) || v.node->op->kind != OpKind::Input)
      broken(graph, nullptr, "input " + std::to_string(i) + " must be an input node of this graph");
  }
  if (num_inputs != static_cast<int>(graph.inputs().size()))
    broken(graph, nullptr, "every input node must be listed as an input once");
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    if (!is_result_of(graph, graph.outputs()[i], n))
      broken(graph, nullptr, "output " + std::to_string(i) + " must be a value of this graph");
}

}  // namespace hotloop::ir
