#include "schedule/row_lanes.h"

#include <algorithm>

#include "core/index.h"
#include "ir/op_def.h"
#include "schedule/dot_plan.h"
#include "schedule/map_builder.h"
#include "schedule/tile_nodes.h"

namespace hotloop {

using ir::OpKind;

namespace {

// What a program does on single numbers a row and on several, in flops, and whether the ones are made of the others: also by other nodes than dots?
struct RowWork {
  double numbers = 0, rows = 0, in_vectors = 0;  // the last: those of empty lanes besides, row by row
  bool all_numbers = true, mixes = false, takes_apart = false;

  double all() const { return numbers + rows; }
  void add(const LoweringContext& context, const Node& node, double times) {
    const std::int64_t to = row_size(context, result_of(node, 0));
    all_numbers = all_numbers && to <= 1;
    const double flops = times * ir::estimate_flops(node);
    if (to > 0) {
      const Shape& shape = node.types[0].shape;
      const std::int64_t lanes = kernel::lanes_of(node.types[0].dtype),
                         last = std::max<std::int64_t>(shape[shape.rank() - 1], 1);
      (to == 1 ? numbers : rows) += flops;
      in_vectors += flops * static_cast<double>(divided_up(last, lanes) * lanes) / static_cast<double>(last);
    }
    for (const Value& o : node.operands) {
      const std::int64_t from = row_size(context, o);
      if (from == 0 || to == 0 || from == to) continue;
      mixes = mixes || context.has_few_numbers_a_row(from > to ? o : result_of(node, 0));
      takes_apart = takes_apart || (mixes && !ir::is(node, OpKind::Dot));
    }
  }
};

// Whether a dot has a few sums a row, each a short chain: by lanes it is a statement that multiplies vectors of rows, if there are too many for an
// expression.
bool has_few_short_sums(const LoweringContext& context, const Node& dot) {
  if (!context.has_few_numbers_a_row(result_of(dot, 0))) return false;
  return std::ranges::all_of(dot.attrs.integers("lhs_contract"), [&](std::int64_t axis) {
    return dot.operands[0].shape()[static_cast<int>(axis)] < shortest_inner_product;
  });
}

// Whether a row finds long rows at places of its own: side by side they are copied, number by number each would be looked up.
bool finds_long_rows(const LoweringContext& context, const Node& node) {
  if (!ir::is(node, OpKind::Gather) && !ir::is(node, OpKind::DynamicSlice)) return false;
  const Value found = result_of(node, 0);
  std::int64_t places = 0;
  for (std::size_t i = 1; i < node.operands.size(); ++i) places = std::max(places, row_size(context, node.operands[i]));
  return places > 0 && row_size(context, found) > places && !context.has_few_numbers_a_row(found);
}

// What a program has that speaks for rows in lanes, and against.
struct LaneCase {
  RowWork in_loops, outside;
  bool has_loops = false, finds_rows = false, is_wide = false, wants_narrow = false;
  // Dots that are no expressions by lanes: in loops those by weights that fill vectors, and others; before and behind loops.
  bool fills_vectors = false, has_dots = false, dots_outside = false;

  LaneCase(const LoweringContext& context, std::span<const Node* const> nodes) {
    const bool by_row = ends_by_row(nodes);
    for (const Node* n : nodes)
      for_each_node(*n, 0, 1,
                    [&](const Node& node, int depth, double times) { add(context, node, depth, times, by_row); });
  }

  void add(const LoweringContext& context, const Node& node, int depth, double times, bool by_row) {
    constexpr double flops_of_a_vector = 32;  // of products and their sums
    const auto takes_eight_bytes = [](Value v) { return size_of(v.dtype()) == 8; };
    const Value result = result_of(node, 0);
    is_wide = is_wide || takes_eight_bytes(result) || std::ranges::any_of(node.operands, takes_eight_bytes);
    wants_narrow =
        wants_narrow || (ir::is(node, OpKind::Reduce) && !takes_eight_bytes(result) && depends_on_lanes(node));
    finds_rows = finds_rows || (depth > 0 && finds_long_rows(context, node));
    if (ir::is(node, OpKind::Loop)) {
      has_loops = true;
      return;
    }
    const bool is_dot = ir::is(node, OpKind::Dot), is_short = is_dot && is_short_dot(context, node);
    if (is_dot && (!is_short || (!by_row && has_long_weights(context, node)))) {
      const bool is_few = !by_row && has_few_short_sums(context, node);
      dots_outside = dots_outside || (depth == 0 && row_size(context, result) > 0);
      fills_vectors = fills_vectors || (depth > 0 && is_few);
      has_dots = has_dots || (depth > 0 && !is_few);
    }
    if (depth > 0)
      in_loops.add(context, node, times);
    else if (!is_dot)
      outside.add(context, node, times);
    else if (!is_short)  // a short one is code at each point, or as long a loop, either way
      outside.rows += times * ir::estimate_flops(node) / flops_of_a_vector;
  }
};

}  // namespace

bool wants_lanes(const LoweringContext& context, std::span<const Node* const> nodes) {
  constexpr double many_times = 4, mostly_empty = 2.1;
  const LaneCase c(context, nodes);
  // Whether a narrow sum shares a statement with wide numbers, which halve its lanes, is decided elsewhere.
  if (c.is_wide && c.wants_narrow) return false;
  if (!c.has_loops) return c.outside.mixes && 2 * c.outside.numbers > c.outside.rows;
  if (c.has_dots || c.finds_rows) return false;
  const std::int64_t rows = context.axes().extent(context.tile_class), whole = (rows + 15) / 16 * 16;
  const double by_lanes = c.in_loops.all() * static_cast<double>(whole) / static_cast<double>(rows);
  const bool is_empty = c.fills_vectors && c.in_loops.in_vectors > mostly_empty * by_lanes;
  if (c.fills_vectors && !is_empty) return false;
  const bool outweighs = c.in_loops.all() >= many_times * c.outside.all();
  if (c.dots_outside && !(outweighs && (c.in_loops.takes_apart || is_empty))) return false;
  return c.in_loops.mixes || c.in_loops.all_numbers || c.in_loops.numbers > c.in_loops.rows;
}

}  // namespace hotloop
