// How the rows of a batch fall into tiles and blocks, and what that costs.
#pragma once

#include <cstdint>
#include <span>

#include "core/index.h"
#include "schedule/context.h"

namespace hotloop {

struct TileCut {
  std::int64_t rows, tile_rows, tiles, per_block, blocks;
  TileCut(std::int64_t rows, std::int64_t tile_rows, std::int64_t most_blocks)
      : rows(rows),
        tile_rows(tile_rows),
        tiles(divided_up(rows, tile_rows)),
        per_block(divided_up(tiles, most_blocks)),
        blocks(divided_up(tiles, per_block)) {}
  std::int64_t last_tile() const { return rows - (tiles - 1) * tile_rows; }
};

// The time of one, two, four and eight workers for a cut, each times their number, over rows: 1 where nothing is lost. What runs on one or
// two counts most, and which number it will be is not known here, nor may results depend on it.
double cost_of_cut(const LoweringContext& context, const TileCut& cut, bool has_dots, double a_tile, double a_block);

// Sums over the rows: each block has sums of its own, which are cleared, come and go while rows are added, and are added up in the end.
struct SumsOverRows {
  double bytes = 0;
  double rows_a_product = 0;  // what one multiplication for each of their numbers takes, in the work of rows

  // What they cost a block, in the work of rows, by measurement (Zen 4). Those of all blocks that stay in the second cache are nearly free.
  double cost_of_block(const kernel::Target& target, std::int64_t blocks) const;
};
SumsOverRows sums_over_rows(const LoweringContext& context, std::span<const Node* const> nodes);

}  // namespace hotloop
