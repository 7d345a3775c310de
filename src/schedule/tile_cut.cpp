#include "schedule/tile_cut.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/index.h"
#include "ir/op_def.h"
#include "schedule/tile_nodes.h"

namespace hotloop {

using ir::OpKind;

namespace {

// What a tile costs, in rows that are multiplied at the full height of the micro-kernel: weights pass once for each block of rows, so that
// low blocks wait for them. Static heights are as equal as can be; others are full ones, then the rest in ever lower ones.
double cost_of_tile(const kernel::Target& target, std::int64_t rows, bool is_static) {
  constexpr double a_pass = 0.1, least_rows_a_pass = 2.5;  // the second: what weights take from the second cache
  const auto block = [&](std::int64_t height) {
    return std::max(static_cast<double>(height), least_rows_a_pass) + a_pass;
  };
  const std::int64_t most = target.dot_rows, blocks = divided_up(rows, most);
  double cost = 0;
  if (is_static) {
    const std::int64_t low = rows / blocks, high = rows % blocks;
    return static_cast<double>(high) * block(low + 1) + static_cast<double>(blocks - high) * block(low);
  }
  std::int64_t left = rows;
  for (const std::int64_t height : {divided_up(rows, blocks), std::int64_t{4}, std::int64_t{2}, std::int64_t{1}}) {
    if (height > most) continue;
    cost += static_cast<double>(left / height) * block(height);
    left %= height;
  }
  return cost;
}

}  // namespace

double cost_of_cut(const LoweringContext& context, const TileCut& cut, bool has_dots, double a_tile, double a_block) {
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

double SumsOverRows::cost_of_block(const kernel::Target& target, std::int64_t blocks) const {
  constexpr double products_from_memory = 250, products_from_third_cache = 5;
  const auto l2_bytes = static_cast<double>(target.l2_bytes);
  if (bytes > l2_bytes) return products_from_memory * rows_a_product;
  return bytes * static_cast<double>(blocks) > l2_bytes ? products_from_third_cache * rows_a_product : 0;
}

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

}  // namespace hotloop
