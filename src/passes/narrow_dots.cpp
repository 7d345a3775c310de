// Columns of a product that nothing reads are not made: where only slices of it are read, and other columns belonged to a value that is computed
// elsewhere now, the operand that they come from is sliced in place of the product.
#include <algorithm>
#include <limits>
#include <optional>

#include "passes/dot_sides.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

// What of a product's result is read: [start, stop) along one axis.
struct Part {
  int axis;
  std::int64_t start, stop;
};

std::optional<Part> part_read(const Value& dot, const ir::Uses& uses) {
  Part part{-1, std::numeric_limits<std::int64_t>::max(), 0};
  if (uses.is_output(dot) || uses.of(dot).empty()) return {};
  for (const ir::Use& use : uses.of(dot)) {
    if (use.node->op->kind != OpKind::Slice) return {};
    const std::optional<int> axis = sliced_axis(*use.node);
    if (!axis || (part.axis >= 0 && *axis != part.axis)) return {};
    part = {*axis, std::min(part.start, use.node->attrs.integers("start")[at(*axis)]),
            std::max(part.stop, use.node->attrs.integers("stop")[at(*axis)])};
  }
  return part.stop - part.start < dot.shape()[part.axis] && part.start < part.stop ? std::optional(part) : std::nullopt;
}

class NarrowDots {
 public:
  NarrowDots(const Graph& graph, const PassOptions& options)
      : graph_(graph), uses_(graph), rebuild_(graph), builder_(rebuild_.to(), options) {}

  std::shared_ptr<const Graph> run() {
    bool changed = false;
    for (const auto& node : graph_.nodes()) {
      if (node->op->kind == OpKind::Input || rebuild_.map().find(node->result()).defined()) continue;
      const std::optional<Part> part = node->op->kind == OpKind::Dot ? part_read(node->result(), uses_) : std::nullopt;
      if (!part || !narrow(*node, *part))
        rebuild_.copy(*node);
      else
        changed = true;
    }
    return changed ? rebuild_.finish() : nullptr;
  }

 private:
  bool narrow(const Node& dot, const Part& part) {
    if (builder_.options().may_vary(dot.types[0].shape[part.axis])) return false;
    auto first = static_cast<std::int64_t>(dot.attrs.integers("lhs_batch").size());
    if (part.axis < first) return false;
    for (const int side : {0, 1}) {
      const Axes free = free_axes(dot, side);
      if (part.axis >= first + static_cast<std::int64_t>(free.size())) {
        first += static_cast<std::int64_t>(free.size());
        continue;
      }
      std::vector<Value> operands = rebuild_.operands(dot);
      builder_.set_generation(dot.generation);
      operands[at(side)] =
          builder_.narrow(operands[at(side)], static_cast<int>(free[at(part.axis - first)]), part.start, part.stop);
      const Value made = builder_.make(*dot.op, std::move(operands), dot.attrs);
      for (const ir::Use& use : uses_.of(const_cast<Node&>(dot).result())) {
        const Attrs& slice = use.node->attrs;
        const Value piece = builder_.narrow(made, part.axis, slice.integers("start")[at(part.axis)] - part.start,
                                            slice.integers("stop")[at(part.axis)] - part.start);
        rebuild_.map().set(const_cast<Node*>(use.node)->result(), piece);
      }
      return true;
    }
    return false;
  }

  const Graph& graph_;
  ir::Uses uses_;
  ir::Rebuild rebuild_;
  Builder builder_;
};

}  // namespace

Pass narrow_dots() {
  return {"narrow_dots", "columns of products that nothing reads are not made", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(graph, [&](const Graph& g, const Level&) { return NarrowDots(g, options).run(); });
          }};
}

}  // namespace hotloop::passes
