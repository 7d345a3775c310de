// In which order a product passes the columns of its right-hand factor, and in which panels of columns that factor is packed. Neither changes a
// result.
#pragma once

#include <optional>
#include <vector>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// Of the products C[m, n] += A[m, k] B[k, n] that are summed into one C: `depth` is the sum of their k.
struct ProductShape {
  DType dtype;
  Extent m;
  std::int64_t n = 0, depth = 0;
  bool in_loop = false;    // of the program: only what the loop does is done before the next time
  std::int64_t parts = 1;  // equal ones that the columns are read in
};
ProductShape shape_of(const Dot& dot, bool in_loop);

// Tiles of one width side by side, in logical vectors.
struct TileRun {
  std::int64_t begin, end, width;
};

// All whole panels of B, in tiles of whole panels, in the order in which a block of rows passes them. For few rows a large B is read as often as it is used;
// where it streams through the caches at every step of a loop, what was read last should still be there next time. Then the walk `turns`: each second
// time it goes from the last tile to the first.
struct ColumnWalk {
  std::int64_t panel = 1;  // vectors; a panel of one may have fewer columns, the last of all
  std::vector<TileRun> runs;
  std::int64_t rest = 0;  // the first vector of a last panel that is narrower, if columns are left over
  bool turns = false;     // the runs are one, or the first and the last are alike
};
ColumnWalk column_walk(const Target& target, const Dot& dot, bool in_loop);

// A product of one row whose columns are `parts` equal parts, of which what follows needs one vector each for a vector of its own results: it can pass them
// in such an order that what follows is done for some vectors while the rest of B is still on its way from the second cache.
struct BlockWalk {
  std::int64_t parts, blocks;  // columns: parts * blocks logical vectors, block by block within each part
  // Blocks that are one tile, a divisor of `blocks`; the walk turns. A part of B begins with a panel, and panels hold whole tiles of it or are held by them.
  std::int64_t width;
};
// Where that takes less time than all of the product and then all of what follows, at so many cycles for a block.
std::optional<BlockWalk> block_walk(const Target& target, const Dot& dot, bool in_loop, std::int64_t parts,
                                    double cycles_after);

// Columns of a panel of B: a register tile's, unless narrower ones let a walk over one or two rows in a loop keep more in the first cache, or a walk by blocks
// is worth it over them.
std::int64_t panel_columns(const Target& target, const ProductShape& shape);

// Of the panels that bound weights lie in, of a step's products of so many rows which read `step_bytes` of them: the width is one for all products that
// may be summed. Single vectors, as a BlockWalk wants them, where one row reads more than the first cache keeps and loads are one a cycle, so
// that reading several panels side by side costs nothing (by measurement on Zen 4); else a register tile's.
std::int64_t bound_panel_columns(const Target& target, DType dtype, std::int64_t rows, std::int64_t step_bytes);

}  // namespace hotloop::kernel
