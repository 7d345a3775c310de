#include "ir/arithmetic.h"

#include "ir/op_def.h"

namespace hotloop::ir {

Arithmetic count_arithmetic(const Graph& graph) {
  Arithmetic sum;
  for (const auto& node : graph.nodes()) {
    const auto add_regions = [&](double times) {
      for (const auto& region : node->regions) {
        const Arithmetic inner = count_arithmetic(*region);
        sum.flops += times * inner.flops;
        sum.is_bound = sum.is_bound || inner.is_bound;
      }
    };
    switch (node->op->kind) {
      case OpKind::Loop:
        add_regions(static_cast<double>(node->attrs.integer("length")));
        sum.is_bound = sum.is_bound || node->regions.size() > 1 || node->attrs.flag("has_trip");
        break;
      case OpKind::Call: add_regions(1); break;
      case OpKind::Elementwise:
        if (node->op->cost_per_element > 0) sum.flops += static_cast<double>(node->types[0].shape.size());
        break;
      default:
        if (node->op->flops) sum.flops += node->op->flops(*node);
    }
  }
  return sum;
}

}  // namespace hotloop::ir
