#include "schedule/tile_shape.h"

#include <algorithm>
#include <set>

#include "ir/op_def.h"
#include "schedule/dot_plan.h"
#include "schedule/levels.h"

namespace hotloop {

using ir::OpKind;

namespace {

// Calls visit(node, loops around it, how often it runs) for what is computed.
template <class F> void for_each_node(const Node& node, int depth, double times, const F& visit) {
  if (ir::is(node, OpKind::Input)) return;
  visit(node, depth, times);
  if (!ir::is(node, OpKind::Loop)) return;
  const double more = times * static_cast<double>(std::max<std::int64_t>(node.attrs.integer("length"), 1));
  for (const auto& region : node.regions)
    for (const auto& inner : region->nodes()) for_each_node(*inner, depth + 1, more, visit);
}

Value result_of(const Node& node, std::size_t i) { return {const_cast<Node*>(&node), static_cast<int>(i)}; }

// Numbers of v that belong to one row of the tile; nothing if it has no rows.
std::int64_t row_size(const LoweringContext& context, Value v) {
  const int axis = context.axes().axis_in(v, context.tile_class);
  return axis < 0 || v.shape()[axis] == 0 ? 0 : v.shape().size() / v.shape()[axis];
}

// A loop over single numbers a row, or in which short rows meet these or are taken apart and put together: with the numbers of a row side
// by side most lanes would be empty there. Where everything is elementwise, rows that lie one after the other fill vectors as they are; and a dot of
// long rows reads these whole.
bool wants_lanes(const LoweringContext& context, std::span<const Node* const> nodes) {
  bool has_dots = false, mixes = false, has_loops = false, all_numbers = true;
  for (const Node* n : nodes)
    for_each_node(*n, 0, 1, [&](const Node& node, int depth, double) {
      const bool after_loops = depth == 0 && row_size(context, result_of(node, 0)) == 0;
      has_dots = has_dots || (ir::is(node, OpKind::Dot) && !after_loops && !is_short_dot(context, node));
      has_loops = has_loops || ir::is(node, OpKind::Loop);
      if (depth == 0 || ir::is(node, OpKind::Loop)) return;
      const Value v = result_of(node, 0);
      all_numbers = all_numbers && row_size(context, v) <= 1;
      for (const Value& o : node.operands) {
        const std::int64_t from = row_size(context, o), to = row_size(context, v);
        if (from == 0 || to == 0 || from == to) continue;
        mixes = mixes || context.has_few_numbers_a_row(from > to ? o : v);
      }
    });
  return (mixes || (has_loops && all_numbers)) && !has_dots;
}

// Whether loops hold work that is the same for all rows, as the primal part of many directional derivatives is: every tile does it again.
bool repeats_work(const LoweringContext& context, std::span<const Node* const> nodes) {
  constexpr double worth_sharing = 0.1, dozen = 12;
  double shared = 0, of_a_row = 0;
  const double rows = static_cast<double>(context.axes().extent(context.tile_class));
  for (const Node* n : nodes)
    for_each_node(*n, 0, 1, [&](const Node& node, int depth, double times) {
      if (depth == 0 || floats(node) || ir::is(node, OpKind::Loop)) return;
      const double flops = times * ir::estimate_flops(node);
      if (context.axes().touches(node, context.tile_class))
        of_a_row += flops / rows;
      else
        shared += flops;
    });
  return shared > worth_sharing * dozen * of_a_row;
}

// Without elementwise work that only such work reads: it is part of its reader's map and lies nowhere.
std::set<const Node*> nodes_in_memory(const Graph& graph) {
  std::set<const Node*> in_memory;
  const auto note = [&](auto&& self, Value v) -> void {
    in_memory.insert(v.node);
    if (floats(*v.node) && !ir::is(*v.node, OpKind::Extent))
      for (const Value& o : v.node->operands) self(self, o);
  };
  for (const auto& n : graph.nodes()) {
    if (!ir::is(*n, OpKind::Elementwise)) in_memory.insert(n.get());
    if (!ir::is(*n, OpKind::Elementwise) && !floats(*n))
      for (const Value& v : n->operands) note(note, v);
  }
  for (const Value& v : graph.outputs()) note(note, v);
  return in_memory;
}

// A product that sums over the rows passes over its whole result for each tile. One that does not stay in the cache meanwhile (the normal
// equations of many parameters) wants tiles that bring it enough to multiply.
std::int64_t least_rows(const LoweringContext& context, std::span<const Node* const> nodes) {
  constexpr std::int64_t dozen = 12, large_sum_bytes = 256 << 10, enough_terms = 48;
  std::int64_t least = dozen;
  for (const Node* n : nodes) {
    if (!ir::is(*n, OpKind::Dot) || row_size(context, result_of(*n, 0)) > 0) continue;
    if (!context.axes().contracts(*n, context.tile_class)) continue;
    const ValueType& sum = n->types[0];
    if (sum.shape.size() * static_cast<std::int64_t>(size_of(sum.dtype)) < large_sum_bytes) continue;
    std::int64_t terms = 1;  // of one row
    for (const std::int64_t axis : n->attrs.integers("lhs_contract"))
      if (context.axes().axis_in(n->operands[0], context.tile_class) != static_cast<int>(axis))
        terms *= n->operands[0].shape()[static_cast<int>(axis)];
    const std::int64_t rows = (enough_terms + terms - 1) / std::max<std::int64_t>(terms, 1);
    least = std::max(least, (rows + dozen - 1) / dozen * dozen);
  }
  return least;
}

}  // namespace

// A dozen rows (two micro-kernels high) where a row carries much state, more where it carries little; whole vectors of them by lanes,
// where short rows stay in registers. Where each tile repeats work, as many rows as the second cache takes.
TileShape choose_tile_shape(const LoweringContext& context, const Graph& graph, std::span<const Node* const> nodes) {
  constexpr std::int64_t dozen = 12, small_tile_bytes = 24 << 10, large_tile_bytes = 256 << 10, most_rows = 96,
                         lanes = 16, most_lanes = 64;
  TileShape shape;
  shape.by_lanes = wants_lanes(context, nodes);
  shape.rows = context.options().tile_rows;
  if (shape.rows > 0) return shape;
  const bool few_tiles = !shape.by_lanes && repeats_work(context, nodes);
  double bytes = 0;
  const std::set<const Node*> in_memory = nodes_in_memory(graph);
  for (const Node* n : nodes) {
    if (floats(*n) || !in_memory.contains(n)) continue;
    for_each_node(*n, 0, 1, [&](const Node& node, int, double times) {
      for (std::size_t i = 0; i < node.types.size(); ++i) {
        const Value v = result_of(node, i);
        if (shape.by_lanes && (ir::is(node, OpKind::Loop) || context.has_few_numbers_a_row(v))) continue;
        bytes += (shape.by_lanes || few_tiles ? 1 : times) * static_cast<double>(row_size(context, v)) *
                 static_cast<double>(size_of(v.dtype()));
      }
    });
  }
  const auto fit = static_cast<std::int64_t>((few_tiles ? large_tile_bytes : small_tile_bytes) / std::max(bytes, 1.0));
  shape.rows = shape.by_lanes ? std::clamp(fit / lanes * lanes, lanes, most_lanes)
                              : std::clamp(fit / dozen * dozen, least_rows(context, nodes), most_rows);
  return shape;
}

}  // namespace hotloop
