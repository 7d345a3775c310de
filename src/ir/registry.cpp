#include "ir/registry.h"

#include <algorithm>

#include "core/nearest.h"
#include "hotloop/error.h"

namespace hotloop::ir {
namespace {

const std::vector<OpDef>& table() {
  static const std::vector<OpDef> ops = [] {
    std::vector<OpDef> all;
    for (OpFile file : op_files())
      for (OpDef& def : file()) all.push_back(std::move(def));
    std::ranges::sort(all, {}, &OpDef::name);
    for (std::size_t i = 1; i < all.size(); ++i)
      HOTLOOP_CHECK(all[i - 1].name != all[i].name, "op '" + all[i].name + "' is defined twice");
    return all;
  }();
  return ops;
}

}  // namespace

std::span<const OpDef> all_ops() { return table(); }

const OpDef* find_op(std::string_view name) {
  const auto& ops = table();
  const auto it = std::ranges::lower_bound(ops, name, {}, [](const OpDef& d) { return std::string_view(d.name); });
  return it != ops.end() && it->name == name ? &*it : nullptr;
}

const OpDef& op(std::string_view name) {
  if (const OpDef* def = find_op(name)) return *def;
  std::vector<std::string> names;
  for (const OpDef& def : table()) names.push_back(def.name);
  throw UserError("op", "the op must exist", std::string(name), nearest_hint(name, names));
}

int num_lane_axes(const Attrs& attrs) { return attrs.has("lanes") ? static_cast<int>(attrs.integer("lanes")) : 0; }

double estimate_flops(const Node& node) {
  if (node.op->flops) return node.op->flops(node);
  return node.types.empty() ? 0 : node.op->cost_per_element * static_cast<double>(node.types.front().shape.size());
}

std::vector<Array> evaluate(const Graph& graph, std::span<const Array> inputs) {
  HOTLOOP_CHECK(inputs.size() == graph.inputs().size(), "evaluate: one array an input");
  const std::function<std::vector<Array>(const Graph&, std::span<const Array>)> call = evaluate;
  std::vector<std::vector<Array>> results(graph.nodes().size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].type() != graph.inputs()[i].type())
      throw UserError("evaluate", "input " + std::to_string(i) + " must be " + graph.inputs()[i].type().str(),
                      inputs[i].type().str());
    results[static_cast<std::size_t>(graph.inputs()[i].node->id)] = {inputs[i]};
  }
  std::vector<Array> operands;
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == OpKind::Input) continue;
    operands.clear();
    for (const Value& v : node->operands)
      operands.push_back(results[static_cast<std::size_t>(v.node->id)][static_cast<std::size_t>(v.index)]);
    results[static_cast<std::size_t>(node->id)] = node->op->eval({*node, operands, call});
  }
  std::vector<Array> outputs;
  for (const Value& v : graph.outputs())
    outputs.push_back(results[static_cast<std::size_t>(v.node->id)][static_cast<std::size_t>(v.index)]);
  return outputs;
}

}  // namespace hotloop::ir
