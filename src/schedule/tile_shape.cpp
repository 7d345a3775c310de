#include "schedule/tile_shape.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "core/index.h"
#include "ir/op_def.h"
#include "schedule/dot_factors.h"
#include "schedule/dot_plan.h"
#include "schedule/levels.h"
#include "schedule/map_builder.h"

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

// Whether the predicate holds for a node, also inside loops.
template <class F> bool any_node(std::span<const Node* const> nodes, const F& predicate) {
  bool any = false;
  for (const Node* n : nodes)
    for_each_node(*n, 0, 1, [&](const Node& node, int, double) { any = any || predicate(node); });
  return any;
}

// Whether a loop ends for each row by itself: its rows may stream (stream_lanes.h), which needs their number in a register.
bool ends_by_row(std::span<const Node* const> nodes) {
  return any_node(nodes, [](const Node& node) { return ir::is(node, OpKind::Loop) && node.regions.size() > 1; });
}

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
      in_vectors += flops * static_cast<double>((last + lanes - 1) / lanes * lanes) / static_cast<double>(last);
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

// Loops that work on single numbers a row for the most part, or in which short rows meet these or are taken apart and put together: with the numbers of a row side
// by side most lanes would be empty there. Where everything is elementwise, rows that lie one after the other fill vectors as they are; and a dot of
// long rows reads these whole, as what finds them does. Weights that fill vectors are as fast either way, in a fraction of the instructions, unless rows stop one by one.
// But where more than half of the lanes would be empty (gates of three units, which are cut out of a product of twelve columns), it is theirs that counts.
// A layer before or behind the loops takes part where these are most of the work: tables that are passed over once are better in rows.
// Without loops, what is written out number by number, as the factors of small matrices are, has to be a third of all: each of these numbers would be
// read apart, where a dot takes a vector of them at once.
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
// equations of many parameters) wants tiles that bring it enough to multiply, twice as much where it comes from the third cache.
std::int64_t least_rows(const LoweringContext& context, std::span<const Node* const> nodes) {
  constexpr std::int64_t dozen = 12, large_sum_bytes = 256 << 10;
  std::int64_t least = dozen;
  for (const Node* n : nodes) {
    if (!ir::is(*n, OpKind::Dot) || row_size(context, result_of(*n, 0)) > 0) continue;
    if (!context.axes().contracts(*n, context.tile_class)) continue;
    const auto bytes = static_cast<std::int64_t>(n->types[0].bytes());
    if (bytes < large_sum_bytes) continue;
    const std::int64_t enough_terms = bytes > context.options().target.l2_bytes ? 96 : 48;
    std::int64_t terms = 1;  // of one row
    for (const std::int64_t axis : n->attrs.integers("lhs_contract"))
      if (context.axes().axis_in(n->operands[0], context.tile_class) != static_cast<int>(axis))
        terms *= n->operands[0].shape()[static_cast<int>(axis)];
    const std::int64_t rows = (enough_terms + terms - 1) / std::max<std::int64_t>(terms, 1);
    least = std::max(least, (rows + dozen - 1) / dozen * dozen);
  }
  return least;
}

bool has_long_dots(const LoweringContext& context, std::span<const Node* const> nodes) {
  return any_node(nodes, [&](const Node& node) { return ir::is(node, OpKind::Dot) && !is_short_dot(context, node); });
}

// Of a grid: partial sums that are kept.
std::int64_t most_blocks(const kernel::Target& target) {
  constexpr std::int64_t of_a_processor = 16;
  return target.has_blocks() ? target.blocks_worth_having : of_a_processor;
}

// How the rows of a batch fall into tiles and blocks.
struct Cut {
  std::int64_t rows, tile_rows, tiles, per_block, blocks;
  Cut(std::int64_t rows, std::int64_t tile_rows, std::int64_t most_blocks)
      : rows(rows),
        tile_rows(tile_rows),
        tiles(divided_up(rows, tile_rows)),
        per_block(divided_up(tiles, most_blocks)),
        blocks(divided_up(tiles, per_block)) {}
  std::int64_t last_tile() const { return rows - (tiles - 1) * tile_rows; }
};

// What a tile costs, in rows that are multiplied at the full height of the micro-kernel: weights pass once for each block of rows, so that
// low blocks wait for them. Static heights are as equal as can be; others are full ones, then the rest in ever lower ones.
double cost_of_tile(const kernel::Target& target, std::int64_t rows, bool is_static) {
  constexpr double a_pass = 0.1, least_rows_a_pass = 2.5;  // the second: what weights take from the second cache
  const auto block = [&](std::int64_t height) {
    return std::max(static_cast<double>(height), least_rows_a_pass) + a_pass;
  };
  const std::int64_t most = target.dot_rows, blocks = (rows + most - 1) / most;
  double cost = 0;
  if (is_static) {
    const std::int64_t low = rows / blocks, high = rows % blocks;
    return static_cast<double>(high) * block(low + 1) + static_cast<double>(blocks - high) * block(low);
  }
  std::int64_t left = rows;
  for (const std::int64_t height : {(rows + blocks - 1) / blocks, std::int64_t{4}, std::int64_t{2}, std::int64_t{1}}) {
    if (height > most) continue;
    cost += static_cast<double>(left / height) * block(height);
    left %= height;
  }
  return cost;
}

// The time of one, two, four and eight workers for a cut, each times their number, over rows: 1 where nothing is lost. What runs on one or
// two counts most, and which number it will be is not known here, nor may results depend on it.
double cost_of_cut(const LoweringContext& context, const Cut& cut, bool has_dots, double a_tile, double a_block) {
  const auto of_tile = [&](std::int64_t rows) {
    if (!has_dots) return static_cast<double>(rows) + a_tile;
    return cost_of_tile(context.options().target, rows,
                        !context.options().variable_rows && cut.rows % cut.tile_rows == 0) +
           a_tile;
  };
  const double full = of_tile(cut.tile_rows), last = of_tile(cut.last_tile());
  double total = 0, weights = 0;
  for (const auto& [workers, weight] : {std::pair(1, 1.0), {2, 1.0}, {4, 0.25}, {8, 0.06}}) {
    std::vector<double> time(static_cast<std::size_t>(workers), 0.0);
    for (std::int64_t b = 0; b < cut.blocks; ++b) {
      const std::int64_t end = std::min(cut.tiles, (b + 1) * cut.per_block), count = end - b * cut.per_block;
      const bool with_last = end == cut.tiles;
      time[static_cast<std::size_t>(b % workers)] +=
          a_block + static_cast<double>(count - (with_last ? 1 : 0)) * full + (with_last ? last : 0);
    }
    total += weight * *std::max_element(time.begin(), time.end()) * workers;
    weights += weight;
  }
  return total / weights / static_cast<double>(cut.rows);
}

// Sums over the rows: each block has sums of its own, which are cleared, come and go while rows are added, and are added up in the end.
struct SumsOverRows {
  double bytes = 0;
  double rows_a_product = 0;  // what one multiplication for each of their numbers takes, in the work of rows

  // What they cost a block, in the work of rows, by measurement (Zen 4). Those of all blocks that stay in the second cache are nearly free.
  double cost_of_block(const kernel::Target& target, std::int64_t blocks) const {
    constexpr double products_from_memory = 250, products_from_third_cache = 5;
    const auto l2_bytes = static_cast<double>(target.l2_bytes);
    if (bytes > l2_bytes) return products_from_memory * rows_a_product;
    return bytes * static_cast<double>(blocks) > l2_bytes ? products_from_third_cache * rows_a_product : 0;
  }
};

SumsOverRows sums_over_rows(const LoweringContext& context, std::span<const Node* const> nodes) {
  double numbers = 0, products = 0;
  SumsOverRows sums;
  for (const Node* n : nodes)
    for_each_node(*n, 0, 1, [&](const Node& node, int depth, double times) {
      if (!ir::is(node, OpKind::Dot) || !context.axes().touches(node, context.tile_class)) return;
      products += times * ir::estimate_flops(node) / 2;
      if (depth > 0 || !context.axes().contracts(node, context.tile_class) || row_size(context, result_of(node, 0)) > 0)
        return;
      numbers += static_cast<double>(node.types[0].shape.size());
      sums.bytes += static_cast<double>(node.types[0].bytes());
    });
  if (numbers > 0)
    sums.rows_a_product = numbers * static_cast<double>(context.axes().extent(context.tile_class)) / products;
  return sums;
}

// Bytes of the factors that rows share, which come again for each tile. A loop reads its own again at every step; what other loops read does not drive them
// out.
std::int64_t bytes_of_weights(const LoweringContext& context, std::span<const Node* const> nodes) {
  struct Factors {
    std::set<ValueKey> seen;
    std::int64_t bytes = 0;
  };
  Factors outside;
  std::int64_t most = 0;
  for (const Node* n : nodes) {
    Factors of_loop;
    Factors& factors = ir::is(*n, OpKind::Loop) ? of_loop : outside;
    for_each_node(*n, 0, 1, [&](const Node& node, int, double) {
      if (!ir::is(node, OpKind::Dot) || row_size(context, result_of(node, 0)) == 0) return;
      for (const Value& v : node.operands)
        if (row_size(context, v) == 0 && factors.seen.insert(key_of(v)).second)
          factors.bytes += static_cast<std::int64_t>(v.type().bytes());
    });
    most = std::max(most, factors.bytes);
  }
  return most;
}

// Whether rows are columns: the tile axis is the last of most numbers that lie in memory, so that a tile is a stripe of each line.
bool are_columns(const LoweringContext& context, std::span<const Node* const> nodes,
                 const std::set<const Node*>& in_memory) {
  double numbers = 0, in_columns = 0;
  const auto count = [&](Value v, double times) {
    const int axis = context.axes().axis_in(v, context.tile_class);
    if (axis < 0 || v.rank() < 2 || row_size(context, v) <= 1) return;
    const double size = times * static_cast<double>(v.shape().size());
    numbers += size;
    std::int64_t inner = 1;
    for (int a = axis + 1; a < v.rank(); ++a) inner *= v.shape()[a];
    if (inner == 1) in_columns += size;
  };
  for (const Node* n : nodes) {
    if (!in_memory.contains(n)) continue;
    for_each_node(*n, 0, 1, [&](const Node& node, int, double times) {
      for (std::size_t i = 0; i < node.types.size(); ++i) count(result_of(node, i), times);
      for (const Value& o : node.operands)
        if (ir::is(*o.node, OpKind::Input)) count(o, times);
    });
  }
  return in_columns > numbers / 2;
}

// From where the factors that rows share come to a tile: beyond the second cache each pass takes longer, and one over memory as long as many rows.
enum class Weights { Near, Large, Far };

Weights weights_of(const LoweringContext& context, std::span<const Node* const> nodes) {
  const kernel::Target& target = context.options().target;
  const std::int64_t bytes = bytes_of_weights(context, nodes);
  return bytes > target.far_bytes() ? Weights::Far : bytes > target.l2_bytes ? Weights::Large : Weights::Near;
}

// Chooses near `wanted` the number of rows for which workers have equal shares of full tiles. Of two alike the larger one, which begins fewer
// statements; where a dozen rows keep more than the first cache holds (`crowded`) the smaller one, whose state lies nearer. Multiples of `step`. Fewer
// blocks than are worth having where sums over the rows cost more.
void cut_evenly(const LoweringContext& context, std::span<const Node* const> nodes, std::int64_t wanted,
                std::int64_t least, bool crowded, Weights weights, TileShape& shape, std::int64_t step = 1) {
  const std::int64_t rows = context.axes().extent(context.tile_class);
  const kernel::Target& target = context.options().target;
  crowded = crowded && weights != Weights::Far;
  const std::int64_t low = std::max<std::int64_t>(std::min(least, wanted), crowded ? 4 : wanted * 2 / 3),
                     high = crowded ? wanted * 4 / 3 : wanted;
  shape.rows = wanted;
  if (rows <= low) {
    shape.rows = std::max<std::int64_t>(rows, 1);
    return;
  }
  const bool has_dots = has_long_dots(context, nodes);
  const SumsOverRows sums = sums_over_rows(context, nodes);
  const double a_tile = weights == Weights::Far ? 24 : !crowded ? 4 : weights == Weights::Large ? 1.6 : 0.5;
  const std::int64_t most = most_blocks(target);
  double least_cost = std::numeric_limits<double>::infinity();
  for (std::int64_t h = (low + step - 1) / step * step; h <= std::min(high, rows); h += step) {
    const double far = crowded ? 1 + 0.06 * static_cast<double>(h) / static_cast<double>(wanted) : 1;
    for (std::int64_t blocks = most; blocks >= most / 4; blocks /= 2) {
      const Cut cut(rows, h, blocks);
      const double a_block = sums.cost_of_block(target, cut.blocks),
                   cost = far * cost_of_cut(context, cut, has_dots, a_tile, a_block);
      if (cost < least_cost) {
        shape.rows = h;
        shape.most_blocks = blocks;
        least_cost = cost;
      }
      if (a_block == 0) break;
    }
  }
}

// The smaller of what one row has along the free axes of a dot's factors, and a dozen. Rows that multiply what is theirs share nothing, however many they are.
std::int64_t height_of_row(const LoweringContext& context, const Node& dot) {
  constexpr std::int64_t dozen = 12;
  const DotShape s = shape_of(dot);
  const auto height = [&](Value v, const std::vector<int>& free, const std::vector<int>& batch) {
    const int rows = context.axes().axis_in(v, context.tile_class);
    if (rows < 0 || std::ranges::find(batch, rows) != batch.end()) return dozen;
    std::int64_t numbers = 1;
    for (const int axis : free)
      if (axis != rows) numbers *= v.shape()[axis];
    return std::min(numbers, dozen);
  };
  return std::min(height(dot.operands[0], s.lhs_free, s.lhs_batch), height(dot.operands[1], s.rhs_free, s.rhs_batch));
}

// Whether rows of v share cache lines, as columns do: read for one row they would be fetched for each of the others again.
bool shares_lines(const LoweringContext& context, Value v) {
  constexpr std::int64_t line_bytes = 64;
  const int axis = context.axes().axis_in(v, context.tile_class);
  if (axis < 0 || row_size(context, v) <= 1) return false;
  auto bytes = static_cast<std::int64_t>(size_of(v.dtype()));
  for (int a = axis + 1; a < v.rank(); ++a) bytes *= v.shape()[a];
  return bytes < line_bytes;
}

// Whether a row is a program of its own, as one network of several is: it fills vectors and blocks of factors by itself, nothing of it is added to other rows', and
// next to nothing would be done again for each. More of them in a tile would only push one another out of the cache.
bool stands_alone(const LoweringContext& context, std::span<const Node* const> nodes) {
  constexpr double nearly_all = 0.9, worth_sharing = 0.1;
  constexpr std::int64_t many_numbers = 1024, dozen = 12;
  if (ends_by_row(nodes)) return false;
  double filled = 0, all = 0, shared = 0;
  bool adds_rows = false, is_among_others = false;
  for (const Node* n : nodes)
    for_each_node(*n, 0, 1, [&](const Node& node, int, double times) {
      if (ir::is(node, OpKind::Loop) || floats(node)) return;
      const double flops = times * ir::estimate_flops(node);
      if (!context.axes().touches(node, context.tile_class)) {
        shared += flops;
        return;
      }
      const std::int64_t size = row_size(context, result_of(node, 0));
      const bool is_dot = ir::is(node, OpKind::Dot);
      adds_rows = adds_rows || (is_dot && size == 0);
      all += flops;
      std::int64_t numbers = size;
      for (const Value& o : node.operands) {
        numbers = std::max(numbers, row_size(context, o));
        is_among_others = is_among_others || (ir::is(*o.node, OpKind::Input) && shares_lines(context, o));
      }
      if (is_dot && !is_short_dot(context, node) ? height_of_row(context, node) >= dozen : numbers >= many_numbers)
        filled += flops;
    });
  const double of_a_row = all / static_cast<double>(context.axes().extent(context.tile_class));
  return !adds_rows && !is_among_others && filled > nearly_all * all && shared < worth_sharing * of_a_row;
}

// Of blocks of threads: as few as keep all multiprocessors busy, since a block is as fast with one row as with several only up to a point; whole warps of them
// where each row is a thread's. Weights that a block has no room for are kept by a few blocks side by side, which share their rows: as many as have
// room for them.
std::int64_t rows_of_a_block(const LoweringContext& context, std::span<const Node* const> nodes, bool by_lanes) {
  constexpr std::int64_t most_rows = 32, warp = 32, most_lanes = 256, room_of_a_block = 288 << 10;
  const bool has_loops = any_node(nodes, [](const Node& node) { return ir::is(node, OpKind::Loop); });
  std::int64_t side_by_side = 1;
  if (has_loops && !by_lanes)
    while (side_by_side < context.options().most_side_by_side &&
           side_by_side * room_of_a_block < bytes_of_weights(context, nodes))
      side_by_side *= 2;
  const std::int64_t rows = context.axes().extent(context.tile_class),
                     blocks = most_blocks(context.options().target) / side_by_side, share = divided_up(rows, blocks);
  if (!by_lanes) return std::clamp<std::int64_t>(share, 1, most_rows);
  return std::clamp((share + warp - 1) / warp * warp, warp, most_lanes);
}

// Whether a loop carries more numbers a row than registers take: of many rows they would not stay in the first cache either.
bool carries_matrices(const LoweringContext& context, std::span<const Node* const> nodes) {
  constexpr std::int64_t registers = 32;
  return any_node(nodes, [&](const Node& node) {
    if (!ir::is(node, OpKind::Loop)) return false;
    for (int i = 0; i < node.attrs.integer("num_carry"); ++i)
      if (const Value v = result_of(node, static_cast<std::size_t>(i));
          row_size(context, v) > registers && context.has_few_numbers_a_row(v))
        return true;
    return false;
  });
}

bool has_sums(const LoweringContext& context, std::span<const Node* const> nodes) {
  return std::ranges::any_of(nodes,
                             [&](const Node* n) { return sums_in_parts(*n, context.axes(), context.tile_class); });
}

// Whether rows are multiplied in blocks (see kernel::Dot).
bool has_blocks(const LoweringContext& context, std::span<const Node* const> nodes) {
  if (!context.options().target.multiplies_blocks) return false;
  return any_node(nodes, [&](const Node& node) {
    return ir::is(node, OpKind::Dot) && rounds_factors(node) && !is_short_dot(context, node);
  });
}

// Then as many as two blocks have, which as pairs are one block of a sum over rows; few where small weights are soon passed over and what is kept of a
// row for sums over the rows would leave the second cache. `bytes`: what a tile keeps a row, at most.
std::int64_t rows_in_blocks(const LoweringContext& context, std::span<const Node* const> nodes, double bytes) {
  constexpr std::int64_t few = 8;
  const std::int64_t l2_bytes = context.options().target.l2_bytes;
  const bool is_small = bytes_of_weights(context, nodes) <= l2_bytes / 8,
             leaves_cache = bytes * kernel::rows_of_blocks > static_cast<double>(l2_bytes);
  return is_small && leaves_cache && has_sums(context, nodes) ? few : kernel::rows_of_blocks;
}

// Factors that the second cache of this machine does not hold come from the third one for each tile anew, so that a tile takes as many rows as are worth
// it, of those that a worker has anyway. That changes no result, since it depends on the machine and on the number of workers: a row is computed by itself,
// and sums over the rows go through a tile by parts, which are what tiles would be otherwise. `bytes`: what a tile keeps a row, at most.
void join_tiles(const LoweringContext& context, std::span<const Node* const> nodes, double bytes, TileShape& shape) {
  constexpr std::int64_t worthwhile_rows = 64;
  constexpr double most_bytes = 512 << 20;
  const std::int64_t rows = context.axes().extent(context.tile_class), workers = context.options().num_workers;
  if (rows <= shape.rows || ends_by_row(nodes)) return;
  const Cut cut(rows, shape.rows, shape.most_blocks);
  const bool sums = has_sums(context, nodes);
  // By measurement (Granite Rapids): what sums over the rows read lies farther apart then, which weights hardly beyond that cache do not pay for; without
  // such sums, factors that leave the cache little room for anything else do.
  const std::int64_t l2_bytes = context.options().target.l2_bytes_there, enough_bytes = sums ? 2 * l2_bytes
                                                                                        : has_blocks(context, nodes)
                                                                                            ? l2_bytes
                                                                                            : l2_bytes / 8;
  const bool always = context.options().always_joins_tiles;
  if (!always && bytes_of_weights(context, nodes) <= enough_bytes) return;
  const auto most_of_a_worker = [&](std::int64_t parts) {
    return divided_up(divided_up(cut.tiles, parts), workers) * parts;
  };
  const auto fits = [&](std::int64_t parts) {
    if (static_cast<double>(parts * shape.rows) * bytes > most_bytes) return false;
    if (sums && cut.per_block > 1) return cut.per_block % parts == 0;   // workers share out blocks
    return 100 * most_of_a_worker(parts) <= 103 * most_of_a_worker(1);  // it gains more than that
  };
  std::int64_t parts = std::clamp<std::int64_t>(worthwhile_rows / shape.rows, 1, cut.tiles);
  if (always) parts = cut.tiles;
  while (parts > 1 && !fits(parts)) --parts;
  shape.rows *= parts;
  if (sums) shape.parts = parts;
}

}  // namespace

// A dozen rows (two micro-kernels high) where a row carries much state, more where it carries little; whole vectors of them by lanes,
// where short rows stay in registers. Where each tile repeats work, as many rows as the second cache takes. Of the numbers of rows near that,
// the one that gives workers equal shares. A row that is a program of its own is a tile.
TileShape choose_tile_shape(const LoweringContext& context, const Graph& graph, std::span<const Node* const> nodes) {
  constexpr std::int64_t dozen = 12, small_tile_bytes = 24 << 10, large_tile_bytes = 256 << 10, most_rows = 96,
                         lanes = 16, most_lanes = 64, short_stripe = 64, longest_stripe = 512;
  TileShape shape;
  shape.most_blocks = most_blocks(context.options().target);
  shape.by_lanes = wants_lanes(context, nodes);
  shape.rows = context.options().tile_rows;
  const auto all_full = [&] {
    return !shape.by_lanes && !context.options().variable_rows &&
           context.axes().extent(context.tile_class) % shape.rows == 0 && !ends_by_row(nodes);
  };
  if (shape.rows > 0) {
    shape.all_full = all_full();
    return shape;
  }
  if (context.options().target.has_blocks()) {
    shape.rows = rows_of_a_block(context, nodes, shape.by_lanes);
    shape.all_full = all_full();
    return shape;
  }
  const bool few_tiles = !shape.by_lanes && repeats_work(context, nodes);
  double bytes = 0, kept = 0;  // of a row: what passes through the caches, and what lies in memory at once, at most
  const std::set<const Node*> in_memory = nodes_in_memory(graph);
  for (const Node* n : nodes) {
    if (floats(*n) || !in_memory.contains(n)) continue;
    for_each_node(*n, 0, 1, [&](const Node& node, int, double times) {
      for (std::size_t i = 0; i < node.types.size(); ++i) {
        const Value v = result_of(node, i);
        const bool in_place = ir::is(node, OpKind::Loop) || ir::is(node, OpKind::DynamicUpdate);
        if (shape.by_lanes && (in_place || context.has_few_numbers_a_row(v))) continue;
        const double bytes_of_v = static_cast<double>(row_size(context, v)) * static_cast<double>(size_of(v.dtype()));
        bytes += (shape.by_lanes || few_tiles ? 1 : times) * bytes_of_v;
        kept += bytes_of_v;
      }
    });
  }
  const auto fit = static_cast<std::int64_t>((few_tiles ? large_tile_bytes : small_tile_bytes) / std::max(bytes, 1.0));
  if (shape.by_lanes) {
    const std::int64_t all = (context.axes().extent(context.tile_class) + lanes - 1) / lanes * lanes,
                       most = carries_matrices(context, nodes) ? most_lanes / 2 : most_lanes;
    shape.rows = std::clamp(fit / lanes * lanes, lanes, std::clamp(all, lanes, most));
    return shape;
  }
  if (are_columns(context, nodes, in_memory)) {
    // Whole cache lines of each line, long stripes of what is passed over once; two of a short axis, for two workers.
    const bool keeps = any_node(nodes, [](const Node& n) { return ir::is(n, OpKind::Loop) || ir::is(n, OpKind::Dot); });
    const std::int64_t half = context.axes().extent(context.tile_class) / 2 / lanes * lanes;
    // A long sum is a chain for each column: of fewer than a stripe two workers would take as long as one.
    const bool sums = std::ranges::any_of(nodes, [](const Node* n) { return ir::is(*n, OpKind::Dot); });
    const std::int64_t wanted =
        std::clamp(keeps ? std::clamp(fit / lanes * lanes, short_stripe, longest_stripe) : longest_stripe, lanes,
                   std::max(half, sums ? short_stripe : lanes));
    shape.rows = wanted;
    if (!few_tiles) cut_evenly(context, nodes, wanted, lanes, false, weights_of(context, nodes), shape, lanes);
    shape.all_full = all_full();
    return shape;
  }
  if (fit < dozen && !few_tiles && stands_alone(context, nodes)) {
    shape.rows = std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(context.axes().extent(context.tile_class), 1));
    shape.all_full = all_full();
    return shape;
  }
  const Weights weights = weights_of(context, nodes);
  if (!few_tiles && has_blocks(context, nodes)) {
    const std::int64_t wanted = rows_in_blocks(context, nodes, kept);
    cut_evenly(context, nodes, wanted, wanted, false, weights, shape, wanted);
    join_tiles(context, nodes, kept, shape);
    shape.all_full = all_full();
    return shape;
  }
  const std::int64_t least = least_rows(context, nodes),
                     wanted = weights == Weights::Far ? most_rows : std::clamp(fit / dozen * dozen, least, most_rows);
  shape.rows = wanted;
  if (!few_tiles) {
    cut_evenly(context, nodes, wanted, least == dozen ? 1 : least, fit < dozen, weights, shape);
    join_tiles(context, nodes, kept, shape);
  }
  shape.all_full = all_full();
  return shape;
}

}  // namespace hotloop
