#include "backends/llvm/dot_emitter.h"

#include <algorithm>

#include "backends/llvm/held_values.h"

namespace hotloop::codegen {

using kernel::KDim;
using Values = Code::Values;

void DotEmitter::emit() {
  const kernel::Target& target = code_.state().program.target;
  const std::int64_t panel = target.dot_vectors, n = dot_.n.bound;
  budget_ = target.dot_rows * target.dot_vectors;
  const std::int64_t panel_columns = panel * lanes_, panels = n / panel_columns;
  const PanelTiles tiles = panel_tiles(panels, panels_side_by_side(target, dot_));
  const auto all_columns = [&](const TileBody& body) {
    columns(0, tiles.in_wide, tiles.width + 1, body);
    columns(tiles.in_wide, panels, tiles.width, body);
    if (const std::int64_t rest = n - panels * panel_columns; rest > 0) {
      const auto vectors = static_cast<int>((rest + lanes_ - 1) / lanes_);
      body({panels * panel_columns, nullptr, vectors, vectors, static_cast<int>(rest - (vectors - 1) * lanes_)});
    }
  };
  if (const Tile widest = tile_of_panels(tiles.in_wide > 0 ? tiles.width + 1 : tiles.width); is_large(widest))
    return blocks_of_a(widest, all_columns);
  all_columns([&](const Tile& tile) { tile_of(tile); });
}

void DotEmitter::columns(std::int64_t begin, std::int64_t end, std::int64_t side, const TileBody& body) {
  const std::int64_t panel = code_.state().program.target.dot_vectors, width = panel * lanes_;
  code_.loop(code_.i64(begin * width), code_.i64(end * width), side * width, [&](Value* forwards) {
    Value* column = forwards;
    if (backwards_ != nullptr && end - begin > side)
      column = code_.b.CreateSelect(backwards_, code_.b.CreateSub(code_.i64((begin + end - side) * width), forwards),
                                    forwards);
    body(tile_of_panels(side, column));
  });
}

void DotEmitter::tile_of(const Tile& tile) {
  if (is_deep(tile)) return parts(tile);
  row_blocks(tile, [&](Value* row, std::int64_t rows) { block(tile, row, rows); });
}

Value* DotEmitter::column_offset(Value* pointer, const Tile& tile, std::int64_t elements_per_column) {
  pointer = code_.offset(pointer, tile.first * elements_per_column * bytes_);
  return tile.loop_columns == nullptr ? pointer
                                      : code_.offset(pointer, tile.loop_columns, elements_per_column * bytes_);
}

std::int64_t DotEmitter::num_row_blocks(const Tile& tile) const {
  const std::int64_t most = std::min<std::int64_t>(12, std::max<std::int64_t>(1, budget_ / tile.vectors));
  return (dot_.m.bound + most - 1) / most;
}

void DotEmitter::unless_cancelled(const std::function<void()>& body) {
  if (cancel_ == nullptr) return body();
  code_.when(code_.b.CreateNot(code_.is_cancelled(cancel_)), body);
}

void DotEmitter::row_blocks(const Tile& tile, const std::function<void(Value*, std::int64_t)>& body) {
  const std::int64_t blocks = num_row_blocks(tile);
  if (blocks == 0) return;
  const std::int64_t height = (dot_.m.bound + blocks - 1) / blocks;
  if (dot_.m.is_static()) {
    for (const RowRange& range : row_ranges(tile))
      code_.loop(code_.i64(range.begin), code_.i64(range.end), range.height,
                 [&](Value* row) { unless_cancelled([&] { body(row, range.height); }); });
    return;
  }
  // Full blocks, then the rest in lower ones of sixteen and eight accumulators, then single rows.
  const std::int64_t middle = 16 / tile.vectors, low = std::clamp<std::int64_t>(8 / tile.vectors, 1, 4);
  Value* row = code_.i64(0);
  const auto rows_of = [&](std::int64_t h) {
    Value* end = code_.b.CreateSub(m_, code_.b.CreateURem(code_.b.CreateSub(m_, row), code_.i64(h)));
    code_.loop(row, end, h, [&](Value* r) { body(r, h); });
    row = end;
  };
  rows_of(height);
  if (middle > low && middle < height) rows_of(middle);
  if (low > 1 && low < height) rows_of(low);
  if (height > 1) rows_of(1);
}

Value* DotEmitter::tail_of(const Tile& tile, int vector) {
  if (vector + 1 < tile.vectors || tile.last_lanes == lanes_) return nullptr;
  return code_.tail_mask(lanes_, code_.i64(tile.last_lanes));
}

void DotEmitter::block(const Tile& tile, Value* row, std::int64_t rows) {
  Values accumulators = initial(tile, row, rows);
  ahead_ = waits_for_init(tile) ? next_init(tile, row) : nullptr;
  for (const Segment& segment : segments_) {
    Value* a = code_.offset(segment.a, row, segment.a_m * bytes_);
    // Panels begin at (first column) * depth.
    Value* b = column_offset(segment.b, tile, segment.packed ? segment.depth : segment.b_n);
    accumulators = steps(segment, 0, tile, rows, a, b, accumulators);
  }
  store_c(accumulators, tile, row, rows);
}

void DotEmitter::store_c(Values values, const Tile& tile, Value* row, std::int64_t rows) {
  if (code_.held != nullptr) code_.held->writes(dot_.c.buffer);
  Value* c = address_of_c(tile, row);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (int j = 0; j < tile.vectors; ++j) {
      Value* to = code_.offset(c, (i * dot_.c_m + j * lanes_ * dot_.c_n) * bytes_);
      code_.store(dot_.dtype, at(values, tile, i, j), to, dot_.c_n, lanes_, tail_of(tile, j));
    }
  }
}

Value* DotEmitter::address_of_c(const Tile& tile, Value* row) {
  return code_.offset(column_offset(c_, tile, dot_.c_n), row, dot_.c_m * bytes_);
}

Values DotEmitter::from_c(const Tile& tile, Value* row, std::int64_t rows) {
  Values values;
  Value* c = address_of_c(tile, row);
  for (std::int64_t i = 0; i < rows; ++i)
    for (int j = 0; j < tile.vectors; ++j)
      values.push_back(code_.load(dot_.dtype, code_.offset(c, (i * dot_.c_m + j * lanes_ * dot_.c_n) * bytes_),
                                  dot_.c_n, lanes_, tail_of(tile, j)));
  return values;
}

Values DotEmitter::initial(const Tile& tile, Value* row, std::int64_t rows) {
  Values values(static_cast<std::size_t>(rows * tile.vectors), code_.zero(dot_.dtype, lanes_));
  if (init_ == nullptr) return values;
  Value* from = code_.offset(column_offset(init_, tile, dot_.init_n), row, dot_.init_m * bytes_);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (int j = 0; j < tile.vectors; ++j) {
      if (i > 0 && dot_.init_m == 0) {
        at(values, tile, i, j) = at(values, tile, 0, j);
        continue;
      }
      Value* pointer = code_.offset(from, (i * dot_.init_m + j * lanes_ * dot_.init_n) * bytes_);
      Value* mask = dot_.init_n == 0 ? nullptr : tail_of(tile, j);
      at(values, tile, i, j) = code_.load(dot_.dtype, pointer, dot_.init_n, lanes_, mask);
    }
  }
  return values;
}

bool DotEmitter::waits_for_init(const Tile& tile) const {
  constexpr std::int64_t deep = 128;  // one more instruction for each vector is nothing
  return init_ != nullptr && dot_.init_m != 0 && dot_.init_n == 1 && tile.loop_columns != nullptr && lanes_ > 1 &&
         std::ranges::any_of(segments_, [](const Segment& s) { return s.depth >= deep; });
}

Value* DotEmitter::next_init(const Tile& tile, Value* row) {
  const std::int64_t width = tile.vectors * lanes_, last = (dot_.n.bound / width - 1) * width;
  Value *step = code_.i64(width), *end = code_.i64(last), *following = code_.b.CreateMul(m_, code_.i64(dot_.init_m));
  if (backwards_ != nullptr) {
    step = code_.b.CreateSelect(backwards_, code_.i64(-width), step);
    end = code_.b.CreateSelect(backwards_, code_.i64(0), end);
  } else {
    following = code_.b.CreateSub(following, end);  // from the first tile again
  }
  Value* next = code_.b.CreateSelect(code_.b.CreateICmpEQ(tile.loop_columns, end), following, step);
  Value* here = code_.offset(column_offset(init_, tile, dot_.init_n), row, dot_.init_m * bytes_);
  return code_.offset(here, next, bytes_);
}

void DotEmitter::prefetch(Value* line) {
  code_.b.CreateIntrinsic(llvm::Intrinsic::prefetch, {line->getType()},
                          {line, code_.b.getInt32(0), code_.b.getInt32(3), code_.b.getInt32(1)});
}
}  // namespace hotloop::codegen
