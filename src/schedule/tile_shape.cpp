#include "schedule/tile_shape.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/index.h"
#include "ir/op_def.h"
#include "schedule/dot_factors.h"
#include "schedule/dot_plan.h"
#include "schedule/levels.h"
#include "schedule/row_lanes.h"
#include "schedule/tile_cut.h"
#include "schedule/tile_nodes.h"
#include "schedule/visited.h"

namespace hotloop {

using ir::OpKind;

namespace {

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
  Visited<> met;
  const auto note = [&](auto&& self, Value v) -> void {
    in_memory.insert(v.node);
    if (met.is_first(v) && floats(*v.node) && !ir::is(*v.node, OpKind::Extent))
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
    least = std::max(least, divided_up(rows, dozen) * dozen);
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
  for (std::int64_t h = divided_up(low, step) * step; h <= std::min(high, rows); h += step) {
    const double far = crowded ? 1 + 0.06 * static_cast<double>(h) / static_cast<double>(wanted) : 1;
    for (std::int64_t blocks = most; blocks >= most / 4; blocks /= 2) {
      const TileCut cut(rows, h, blocks);
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
  std::int64_t side_by_side = 1;
  if (const std::int64_t most = context.options().most_side_by_side;
      most > 1 && !by_lanes && any_node(nodes, [](const Node& node) { return ir::is(node, OpKind::Loop); })) {
    const std::int64_t bytes = bytes_of_weights(context, nodes);
    while (side_by_side < most && side_by_side * room_of_a_block < bytes) side_by_side *= 2;
  }
  // Not all multiprocessors lie so that they can be side by side.
  const std::int64_t most = most_blocks(context.options().target),
                     blocks = side_by_side == 1 ? most : std::max<std::int64_t>(most * 7 / 8 / side_by_side, 1),
                     share = divided_up(context.axes().extent(context.tile_class), blocks);
  if (!by_lanes) return std::clamp<std::int64_t>(share, 1, most_rows);
  return std::clamp(divided_up(share, warp) * warp, warp, most_lanes);
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
void join_tiles(const LoweringContext& context, std::span<const Node* const> nodes, double bytes, TileShape& shape,
                std::int64_t worthwhile_rows = 64) {
  constexpr double most_bytes = 512 << 20;
  const std::int64_t rows = context.axes().extent(context.tile_class), workers = context.options().num_workers;
  if (rows <= shape.rows || ends_by_row(nodes)) return;
  const TileCut cut(rows, shape.rows, shape.most_blocks);
  const bool sums = has_sums(context, nodes);
  // By measurement (Granite Rapids): what sums over the rows read lies farther apart then, which weights hardly beyond that cache do not pay for; without
  // such sums, factors that leave the cache little room for anything else do.
  const std::int64_t l2_bytes = context.options().target.l2_bytes_there, enough_bytes = sums ? 2 * l2_bytes
                                                                                        : has_blocks(context, nodes)
                                                                                            ? l2_bytes
                                                                                            : l2_bytes / 8;
  const bool always = context.options().always_joins_tiles;
  if (!always && sums && context.options().target.l3_is_near_there) return;  // Zen 4: 2 to 5 % more
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

// Whether a tile is one product, which cuts its rows and columns by itself as the caches want it.
bool is_product(const LoweringContext& context, std::span<const Node* const> nodes,
                const std::set<const Node*>& in_memory) {
  const Node* product = nullptr;
  for (const Node* n : nodes) {
    if (floats(*n) || !in_memory.contains(n)) continue;
    if (product != nullptr || !ir::is(*n, OpKind::Dot)) return false;
    product = n;
  }
  return product != nullptr && !context.axes().contracts(*product, context.tile_class);
}

// Of a tile that passes over its rows once, with nothing that is read again and again: as many as take far longer than beginning the tile does, as few as
// leave workers something to share. Nothing where it has loops or products.
std::optional<std::int64_t> rows_of_a_pass(const LoweringContext& context, std::span<const Node* const> nodes) {
  constexpr double enough_work = 16384;  // in cost_per_element
  constexpr double most_rows = 1024;
  if (any_node(nodes, [](const Node& node) { return ir::is(node, OpKind::Loop) || ir::is(node, OpKind::Dot); }))
    return std::nullopt;
  double work = 1;
  for (const Node* n : nodes)
    if (context.axes().touches(*n, context.tile_class)) work += ir::estimate_flops(*n);
  const double of_a_row = work / static_cast<double>(context.axes().extent(context.tile_class));
  return static_cast<std::int64_t>(std::min(enough_work / of_a_row, most_rows));
}

}  // namespace

// A dozen rows (two micro-kernels high) where a row carries much state, more where it carries little; whole vectors of them by lanes,
// where short rows stay in registers. Where each tile repeats work, as many rows as the second cache takes. Of the numbers of rows near that,
// the one that gives workers equal shares. A row that is a program of its own is a tile; short rows that are passed over once are many.
TileShape choose_tile_shape(const LoweringContext& context, const Graph& graph, std::span<const Node* const> nodes) {
  constexpr std::int64_t dozen = 12, small_tile_bytes = 24 << 10, large_tile_bytes = 256 << 10, most_rows = 96,
                         lanes = 16, most_lanes = 64, short_stripe = 64, longest_stripe = 512, rows_of_product = 512;
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
    const std::int64_t all = divided_up(context.axes().extent(context.tile_class), lanes) * lanes,
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
    if (!few_tiles && is_product(context, nodes, in_memory)) join_tiles(context, nodes, kept, shape, rows_of_product);
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
  if (const auto of_a_pass = few_tiles ? std::nullopt : rows_of_a_pass(context, nodes);
      of_a_pass && std::min(*of_a_pass, fit) > most_rows) {
    cut_evenly(context, nodes, std::min(*of_a_pass, fit) / lanes * lanes, lanes, false, weights, shape, lanes);
    shape.all_full = all_full();
    return shape;
  }
  const std::int64_t least = least_rows(context, nodes),
                     wanted = weights == Weights::Far ? most_rows : std::clamp(fit / dozen * dozen, least, most_rows);
  shape.rows = wanted;
  if (!few_tiles) {
    cut_evenly(context, nodes, wanted, least == dozen ? 1 : least, fit < dozen, weights, shape);
    if (is_product(context, nodes, in_memory)) {
      join_tiles(context, nodes, kept, shape, rows_of_product);
    } else {
      join_tiles(context, nodes, kept, shape);
    }
  }
  shape.all_full = all_full();
  return shape;
}

}  // namespace hotloop
