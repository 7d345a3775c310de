// A product that sums nothing, such as the gradient of a matrix for one sample, and which elementwise work reads, is elementwise work itself: it is
// computed where it is read and lies nowhere. Late, when it is known which products become sums over time; and not one that is
// added to something, since sums of products are one Dot, whose bits must not depend on how long a term of it is.
#include <algorithm>

#include "passes/builder.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;
using ir::ScalarOp;

// Whether what reads v is elementwise and adds nothing to it, through changes of index too.
bool is_read_elementwise(const ir::Uses& uses, Value v) {
  if (uses.is_output(v) || uses.count(v) == 0) return false;
  return std::ranges::all_of(uses.of(v), [&](const ir::Use& use) {
    const Node& reader = *use.node;
    switch (reader.op->kind) {
      case OpKind::Elementwise: return reader.op->scalar != ScalarOp::Add;
      case OpKind::Transpose:
      case OpKind::Broadcast:
      case OpKind::Reshape: return is_read_elementwise(uses, const_cast<Node&>(reader).result());
      default: return false;
    }
  });
}

bool sums_nothing(const Node& dot, const PassOptions& options) {
  const auto axes = dot.attrs.integers("lhs_contract");
  return is_float(dot.types[0].dtype) && std::ranges::all_of(axes, [&](std::int64_t axis) {
           const std::int64_t extent = dot.operands[0].shape()[static_cast<int>(axis)];
           return extent == 1 && !options.may_vary(extent);
         });
}

// One factor with the axes of the product: batch axes first, then the free ones of lhs, then those of rhs.
Value placed(Builder& b, Value factor, const Axes& batch, const Axes& contract, const Shape& shape, int first_free) {
  Shape kept;
  Axes places;
  for (int axis = 0, free = first_free; axis < factor.rank(); ++axis) {
    if (std::ranges::find(contract, axis) != contract.end()) continue;
    const auto in_batch = std::ranges::find(batch, axis);
    places.push_back(in_batch != batch.end() ? in_batch - batch.begin() : free++);
    kept.push_back(factor.shape()[axis]);
  }
  Value reduced = b.reshape(factor, kept);
  if (!std::ranges::is_sorted(places)) {
    Axes order(places.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    std::ranges::sort(order, {}, [&](std::int64_t i) { return places[static_cast<std::size_t>(i)]; });
    reduced = b.transpose(reduced, order);
    std::ranges::sort(places);
  }
  return b.broadcast(reduced, shape, places);
}

std::shared_ptr<const Graph> rewrite_level(const Graph& graph, const PassOptions& options) {
  ir::Rebuild rebuild(graph);
  Builder b(rebuild.to(), options);
  const ir::Uses uses(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == OpKind::Input) continue;
    if (node->op->kind != OpKind::Dot || !sums_nothing(*node, options) || !is_read_elementwise(uses, node->result())) {
      rebuild.copy(*node);
      continue;
    }
    const Axes &lhs_batch = node->attrs.integers("lhs_batch"), &rhs_batch = node->attrs.integers("rhs_batch"),
               &lhs_contract = node->attrs.integers("lhs_contract"),
               &rhs_contract = node->attrs.integers("rhs_contract");
    const Shape& shape = node->types[0].shape;
    const auto num_batch = static_cast<int>(lhs_batch.size());
    const int lhs_free = node->operands[0].rank() - num_batch - static_cast<int>(lhs_contract.size());
    const std::vector<Value> factors = rebuild.operands(*node);
    rebuild.map().set(node->result(),
                      b.mul(placed(b, factors[0], lhs_batch, lhs_contract, shape, num_batch),
                            placed(b, factors[1], rhs_batch, rhs_contract, shape, num_batch + lhs_free)));
    changed = true;
  }
  return changed ? rebuild.finish() : nullptr;
}

}  // namespace

Pass outer_products() {
  return {"outer_products", "products that sum nothing are part of the elementwise work that reads them", true,
          [](const Graph& graph, const PassOptions& options) -> std::shared_ptr<const Graph> {
            if (options.rounds_factors) return nullptr;
            return rewrite_levels(graph, [&](const Graph& g, const Level&) { return rewrite_level(g, options); });
          }};
}

}  // namespace hotloop::passes
