#include "schedule/desugar.h"

#include <map>
#include <numeric>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/op_def.h"

namespace hotloop {
namespace {

using ValueMap = std::map<std::pair<const Node*, int>, Value>;

// Copies the nodes of `graph` into the current graph; `mapped` holds its inputs on entry.
std::vector<Value> copy_nodes(const Graph& graph, ValueMap& mapped);

// Frozen lanes: where the predicate holds, carries keep their old value and ys are zero.
std::shared_ptr<Graph> freeze_lanes(const Graph& body, const Graph& until, std::size_t num_carry, std::size_t num_xs) {
  auto frozen = std::make_shared<Graph>(body.name());
  TraceScope scope(*frozen);
  std::vector<Value> inputs;
  for (const Value& v : body.inputs()) inputs.push_back(frozen->add_input(v.type()));
  ValueMap in_until, in_body;
  for (std::size_t i = 0; i < until.inputs().size(); ++i)
    in_until[{until.inputs()[i].node, 0}] = inputs[i < num_carry ? i : i + num_xs];
  for (std::size_t i = 0; i < inputs.size(); ++i) in_body[{body.inputs()[i].node, 0}] = inputs[i];
  const Value done = copy_nodes(until, in_until)[0];
  std::vector<std::int64_t> lane_axes(static_cast<std::size_t>(done.rank()));
  std::iota(lane_axes.begin(), lane_axes.end(), 0);
  std::vector<Value> outputs = copy_nodes(body, in_body);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Value mask = broadcast(done, outputs[i].shape(), lane_axes);
    outputs[i] = select(mask, i < num_carry ? inputs[i] : zeros_like(outputs[i]), outputs[i]);
  }
  frozen->set_outputs(outputs);
  return frozen;
}

std::shared_ptr<Graph> copy(const Graph& graph) {
  auto result = std::make_shared<Graph>(graph.name());
  TraceScope scope(*result);
  ValueMap mapped;
  for (std::size_t i = 0; i < graph.inputs().size(); ++i)
    mapped[{graph.inputs()[i].node, 0}] =
        result->add_input(graph.inputs()[i].type(), graph.input_name(static_cast<int>(i)));
  result->set_outputs(copy_nodes(graph, mapped));
  return result;
}

std::vector<Value> copy_nodes(const Graph& graph, ValueMap& mapped) {
  Graph& target = current_graph();
  for (const auto& node : graph.nodes()) {
    if (ir::is(*node, ir::OpKind::Input)) continue;
    std::vector<Value> operands;
    for (const Value& v : node->operands) operands.push_back(mapped.at({v.node, v.index}));
    std::vector<std::shared_ptr<const Graph>> regions;
    for (const auto& region : node->regions) regions.push_back(copy(*region));
    if (ir::is(*node, ir::OpKind::Loop) && regions.size() > 1 && regions[1]->outputs()[0].rank() > 0)
      regions[0] = freeze_lanes(*regions[0], *regions[1], static_cast<std::size_t>(node->attrs.integer("num_carry")),
                                static_cast<std::size_t>(node->attrs.integer("num_xs")));
    Node* fresh = target.append(*node->op, operands, node->attrs, regions, node->generation);
    for (int i = 0; i < static_cast<int>(node->types.size()); ++i) mapped[{node.get(), i}] = fresh->result(i);
  }
  std::vector<Value> outputs;
  for (const Value& v : graph.outputs()) outputs.push_back(mapped.at({v.node, v.index}));
  return outputs;
}

}  // namespace

std::shared_ptr<Graph> desugar(const Graph& graph) { return copy(graph); }

}  // namespace hotloop
