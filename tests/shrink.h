// A graph that fails, made small for a person to read.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/ops.h"
#include "ir/op_def.h"
#include "ir/rewrite.h"

namespace hotloop::testing {

struct Case {
  std::shared_ptr<const Graph> graph;
  std::vector<Array> inputs;
};

// Those of a case's results that are flagged, without what no result needs.
inline Case with_results(const Case& of, const std::vector<bool>& kept) {
  ir::Rebuild rebuild(*of.graph);
  for (const auto& node : of.graph->nodes())
    if (!ir::is(*node, ir::OpKind::Input)) rebuild.copy(*node);
  std::vector<Value> outputs;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) outputs.push_back(rebuild(of.graph->outputs()[i]));
  auto graph = rebuild.finish();
  graph->set_outputs(outputs);
  return {graph, of.inputs};
}

// Without dead nodes and inputs.
inline Case tidied(const Case& of) {
  std::shared_ptr<const Graph> live = ir::eliminate_dead(*of.graph);
  if (!live) live = of.graph;
  const ir::Uses uses(*live);
  const auto graph = std::make_shared<Graph>(live->name());
  ir::ValueMap map(*live);
  Case made{graph, {}};
  for (std::size_t i = 0; i < live->inputs().size(); ++i)
    if (const Value v = live->inputs()[i]; uses.count(v) > 0) {
      map.set(v, graph->add_input(v.type()));
      made.inputs.push_back(of.inputs[i]);
    }
  for (const auto& node : live->nodes()) {
    if (ir::is(*node, ir::OpKind::Input)) continue;
    std::vector<Value> operands;
    for (const Value& v : node->operands) operands.push_back(map(v));
    Node* copied = graph->append(*node->op, operands, node->attrs, node->regions, node->generation);
    for (int i = 0; i < static_cast<int>(node->types.size()); ++i) map.set({node.get(), i}, copied->result(i));
  }
  std::vector<Value> outputs;
  for (const Value& v : live->outputs()) outputs.push_back(map(v));
  graph->set_outputs(outputs);
  return made;
}

// The graph with the result of one node (of all regions too, counted from the end) replaced by an operand of the same type, by a constant or, of the
// program's own nodes, by an input that holds what the oracle computes.
class Replacement {
 public:
  Replacement(int node, int way) : left_(node), way_(way) {}

  std::optional<Case> operator()(const Case& of) {
    Case made{rebuilt(*of.graph, &of), of.inputs};
    if (!done_) return std::nullopt;
    if (given_.defined()) made.inputs.push_back(given_);
    return tidied(made);
  }
  bool beyond_the_end() const { return left_ >= 0; }

 private:
  std::shared_ptr<const Graph> rebuilt(const Graph& graph, const Case* program) {
    std::map<const Node*, int> chosen;
    std::map<const Node*, std::vector<std::shared_ptr<const Graph>>> regions;
    for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend() && left_ >= 0; ++it) {
      const Node& node = **it;
      if (ir::is(node, ir::OpKind::Input) || ir::is(node, ir::OpKind::Constant)) continue;
      if (left_-- == 0) {
        chosen[&node] = way_;
        break;
      }
      if (!ir::is(node, ir::OpKind::Loop) && !ir::is_plain_call(node)) continue;
      for (std::size_t r = 0; r < node.regions.size() && left_ >= 0; ++r) {
        auto body = rebuilt(*node.regions[r], nullptr);
        if (!done_) continue;
        regions[&node] = node.regions;
        regions[&node][r] = body;
      }
    }
    ir::Rebuild rebuild(graph);
    const TraceScope scope(rebuild.to());
    for (const auto& node : graph.nodes()) {
      if (ir::is(*node, ir::OpKind::Input)) continue;
      const auto found = regions.find(node.get());
      rebuild.copy(*node, found == regions.end() ? node->regions : found->second);
      if (!chosen.contains(node.get())) continue;
      for (int i = 0; i < static_cast<int>(node->types.size()); ++i) {
        const Value old{node.get(), i};
        if (const Value other = in_place_of(rebuild, *node, old, program, i); other.defined()) {
          rebuild.map().set(old, other);
          done_ = true;
        }
      }
    }
    return rebuild.finish();
  }
  Value in_place_of(ir::Rebuild& rebuild, const Node& node, Value old, const Case* program, int result) {
    if (way_ == 0 && program != nullptr && result == 0) {
      ir::Rebuild until(*program->graph);
      for (const auto& n : program->graph->nodes())
        if (!ir::is(*n, ir::OpKind::Input)) until.copy(*n);
      const Value value = until(old);
      auto part = until.finish();
      part->set_outputs({value});
      given_ = ir::evaluate(*part, program->inputs)[0];
      return rebuild.to().add_input(old.type());
    }
    if (way_ == 1) return constant(is_float(old.dtype()) ? 0.5 : 1, old.dtype(), old.shape());
    if (way_ > 1 && way_ - 2 < static_cast<int>(node.operands.size()))
      if (const Value v = node.operands[static_cast<std::size_t>(way_ - 2)]; v.type() == old.type()) return rebuild(v);
    return {};
  }

  int left_, way_;
  bool done_ = false;
  Array given_;
};

// The smallest case found that fails still, after so many tries.
inline Case shrunk(Case failing, const std::function<bool(const Case&)>& fails, int tries = 300) {
  const auto better = [&](const Case& other) {
    if (tries <= 0) return false;
    --tries;
    try {
      ir::verify(*other.graph);
      if (!fails(other)) return false;
    } catch (const std::exception&) {
      return false;
    }
    failing = other;
    return true;
  };
  for (bool again = true; again && tries > 0;) {
    again = false;
    for (std::size_t i = 0; i < failing.graph->outputs().size() && failing.graph->outputs().size() > 1;) {
      std::vector<bool> kept(failing.graph->outputs().size(), true);
      kept[i] = false;
      better(tidied(with_results(failing, kept))) ? void(again = true) : void(++i);
    }
    for (int node = 0; tries > 0; ++node) {
      bool beyond = false;
      for (const int way : {2, 3, 4, 0, 1}) {
        Replacement replace(node, way);
        const int before = ir::count_nodes(*failing.graph);
        const auto other = replace(failing);
        beyond = replace.beyond_the_end();
        if (!other || ir::count_nodes(*other->graph) >= before) continue;
        if (better(*other)) {
          again = true;
          break;
        }
      }
      if (beyond) break;
    }
  }
  return failing;
}

}  // namespace hotloop::testing
