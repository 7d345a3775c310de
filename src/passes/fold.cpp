// Constant folding: a node whose operands are literals becomes a literal, by the op's own definition.
#include <algorithm>

#include "core/denormals.h"
#include "passes/pass.h"

namespace hotloop::passes {
namespace {

constexpr std::int64_t max_elements = 1024;  // a larger literal costs more than computing it again

bool folds(const Node& node, const PassOptions& options) {
  using ir::OpKind;
  switch (node.op->kind) {
    // A repeated scalar and a counter are free where they are used; regions are left to the passes on loops.
    case OpKind::Input:
    case OpKind::Constant:
    case OpKind::Broadcast:
    case OpKind::Iota:
    case OpKind::Loop:
    case OpKind::Call:
    case OpKind::Extent:
    case OpKind::RandomBits: return false;
    default: break;
  }
  if (node.operands.empty()) return false;
  for (const Value& v : node.operands) {
    if (v.node->op->kind != OpKind::Constant || v.shape().size() > max_elements) return false;
    for (std::int64_t extent : v.shape().dims())
      if (options.may_vary(extent)) return false;
  }
  return std::ranges::all_of(node.types, [](const ValueType& t) { return t.shape.size() <= max_elements; });
}

std::shared_ptr<const Graph> fold_level(const Graph& graph, const PassOptions& options) {
  ir::Rebuild rebuild(graph);
  const std::function<std::vector<Array>(const Graph&, std::span<const Array>)> call = ir::evaluate;
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == ir::OpKind::Input) continue;
    Node* copied = rebuild.copy(*node);
    if (!folds(*copied, options)) continue;
    std::vector<Array> operands;
    for (const Value& v : copied->operands) operands.push_back(v.node->attrs.get<Array>("value"));
    const std::vector<Array> results = node->op->eval({*copied, operands, call});
    for (std::size_t i = 0; i < results.size(); ++i) {
      Node* literal = rebuild.to().append(ir::op("constant"), {}, {{"value", results[i]}}, {}, node->generation);
      rebuild.map().set(node->result(static_cast<int>(i)), literal->result());
    }
    changed = true;
  }
  return changed ? rebuild.finish() : nullptr;
}

}  // namespace

Pass fold() {
  return {"fold", "computes small expressions of literals once and for all", true,
          [](const Graph& graph, const PassOptions& options) {
            const DenormalsAsZero mode(options.flush_denormals);
            return rewrite_levels(graph, [&](const Graph& g, const Level&) { return fold_level(g, options); });
          }};
}

}  // namespace hotloop::passes
