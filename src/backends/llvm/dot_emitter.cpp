#include "backends/llvm/dot_emitter.h"

#include <algorithm>

#include "backends/llvm/held_values.h"
#include "core/index.h"

namespace hotloop::codegen {

using kernel::KDim;
using kernel::TileRun;
using Values = Code::Values;

void DotEmitter::emit() {
  if (const std::optional<Tile> widest = widest_tile()) {
    if (is_large(*widest)) return large(*widest);
    if (reads_bands(*widest)) return bands();
  }
  all_columns([&](const Tile& tile) { emit_tile(tile); });
}

std::optional<DotEmitter::Tile> DotEmitter::widest_tile() const {
  const auto widest = std::ranges::max_element(walk_.runs, {}, &TileRun::width);
  if (widest == walk_.runs.end()) return std::nullopt;
  return Tile{0, nullptr, static_cast<int>(widest->width), static_cast<int>(walk_.panel), lanes_, {}};
}

std::vector<DotEmitter::RowRange> DotEmitter::row_ranges(const Tile& tile) const {
  const std::int64_t m = dot_.m.bound, blocks = num_row_blocks(tile), low = m / blocks,
                     high_rows = m % blocks * (low + 1);
  std::vector<RowRange> ranges;
  if (high_rows > 0) ranges.push_back({0, high_rows, low + 1});
  if (high_rows < m) ranges.push_back({high_rows, m, low});
  if (RowRange& last = ranges.back(); summed_ == Summed::Columns && last.end - last.begin > last.height) {
    const RowRange alone{last.end - last.height, last.end, last.height};
    last.end = alone.begin;
    ranges.push_back(alone);
  }
  return ranges;
}

void DotEmitter::columns_there(const TileBody& body) {
  const int width = walk_.runs.empty() ? 1 : static_cast<int>(std::min<std::int64_t>(4, walk_.runs[0].width));
  Value* begin = code_.i64(0);
  const auto tiles_of = [&](int vectors) {
    const std::int64_t columns = std::int64_t{vectors} * lanes_;
    Value* end = code_.b.CreateSub(n_, code_.b.CreateURem(n_, code_.i64(columns)));
    code_.loop(begin, end, columns, [&](Value* column) { body({0, column, vectors, 1, lanes_, {}}); });
    begin = end;
  };
  if (width > 1) tiles_of(width);
  tiles_of(1);
  code_.when(code_.b.CreateICmpSLT(begin, n_), [&] {
    Tile tile{0, begin, 1, 1, lanes_, {}};
    tile.active = code_.b.CreateSub(n_, begin);
    body(tile);
  });
}

void DotEmitter::all_columns(const TileBody& body) {
  if (!dot_.n.is_static()) return columns_there(body);
  const std::vector<TileRun>& runs = walk_.runs;
  if (!walk_.turns) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const bool last = i + 1 == runs.size();
      const TileRun& after = runs[last ? 0 : i + 1];
      columns(runs[i], {code_.i64(after.begin * lanes_), last ? m_ : code_.i64(0), after.width}, body);
    }
    return rest_of_columns(body);
  }
  // Where the walk ends it begins the next time.
  const TileRun &front = runs.front(), &back = runs.back();
  const auto column = [&](std::int64_t forwards, std::int64_t backwards) {
    return code_.b.CreateSelect(backwards_, code_.i64(backwards * lanes_), code_.i64(forwards * lanes_));
  };
  const NextTile again{column(back.end - back.width, front.begin), m_, back.width};
  if (runs.size() == 1) {
    columns(front, again, body);
    return rest_of_columns(body);
  }
  // A tile at either end, which change places, and those between them.
  const TileRun& middle = runs[1];
  Value* const forwards = code_.b.CreateNot(backwards_);
  const NextTile to_middle{column(middle.begin, middle.end - middle.width), code_.i64(0), middle.width};
  code_.when(forwards, [&] { columns(front, to_middle, body); });
  code_.when(backwards_, [&] { columns(back, to_middle, body); });
  rest_of_columns(body);
  columns(middle, {again.column, code_.i64(0), back.width}, body);
  code_.when(forwards, [&] { columns(back, again, body); });
  code_.when(backwards_, [&] { columns(front, again, body); });
}

void DotEmitter::columns(const TileRun& run, const NextTile& after, const TileBody& body) {
  const bool has_tail = run.end * lanes_ > dot_.n.bound;  // a panel of one vector, which may have fewer columns
  const std::int64_t begin = run.begin * lanes_, width = run.width * lanes_, last = run.end * lanes_ - width,
                     end = has_tail ? last : last + width;
  const bool turns = backwards_ != nullptr && begin < last;
  const auto visit = [&](Value* column, int last_lanes) {
    Tile tile{0, column, static_cast<int>(run.width), static_cast<int>(walk_.panel), last_lanes, after};
    if (begin < last) {
      Value *at_end = code_.i64(last), *step = code_.i64(width);
      if (turns) {
        at_end = code_.b.CreateSelect(backwards_, code_.i64(begin), at_end);
        step = code_.b.CreateSelect(backwards_, code_.i64(-width), step);
      }
      Value* ends = code_.b.CreateICmpEQ(column, at_end);
      tile.next = {code_.b.CreateSelect(ends, after.column, code_.b.CreateAdd(column, step)),
                   code_.b.CreateSelect(ends, after.rows, code_.i64(0)), std::max(run.width, after.vectors)};
    }
    body(tile);
  };
  const auto tail = [&] { visit(code_.i64(last), static_cast<int>(dot_.n.bound - (run.end - 1) * lanes_)); };
  if (has_tail && turns) code_.when(backwards_, tail);
  code_.loop(code_.i64(begin), code_.i64(end), width, [&](Value* forwards) {
    Value* column = forwards;
    if (turns)
      column = code_.b.CreateSelect(backwards_, code_.b.CreateSub(code_.i64(begin + end - width), forwards), forwards);
    visit(column, lanes_);
  });
  if (has_tail && turns) return code_.when(code_.b.CreateNot(backwards_), tail);
  if (has_tail) tail();
}

void DotEmitter::emit_by_blocks(const kernel::BlockWalk& walk, bool c_stays,
                                const std::function<void(Value* block)>& finish) {
  code_.loop(code_.i64(0), code_.i64(walk.blocks), walk.width, [&](Value* forwards) {
    Value* backwards = code_.b.CreateSub(code_.i64(walk.blocks - walk.width), forwards);
    Value* block = code_.b.CreateSelect(backwards_, backwards, forwards);
    // What the last tile gives comes late; were it the first block, where the next step's sums begin, they would wait for it.
    if (walk.blocks >= 3 * walk.width) {
      Value* is_of_first_two = code_.b.CreateICmpULT(block, code_.i64(2 * walk.width));
      block = code_.b.CreateSelect(is_of_first_two, code_.b.CreateSub(code_.i64(walk.width), block), block);
    }
    Tile tile{0,
              code_.b.CreateMul(block, code_.i64(lanes_)),
              static_cast<int>(walk.parts * walk.width),
              static_cast<int>(walk_.panel),
              lanes_,
              {}};
    tile.side = walk.width;
    tile.apart = walk.blocks;
    tile.c_stays = c_stays;
    emit_tile(tile);
    finish(block);
  });
}

void DotEmitter::rest_of_columns(const TileBody& body) {
  const std::int64_t first = walk_.rest * lanes_, columns = dot_.n.bound - first;
  if (columns <= 0) return;
  const auto vectors = static_cast<int>(divided_up(columns, lanes_));
  body({first, nullptr, vectors, vectors, static_cast<int>(columns - (vectors - 1) * lanes_), {}});
}

void DotEmitter::emit_tile(const Tile& tile) {
  if (is_deep(tile)) return parts(tile);
  row_blocks(tile, [&](Value* row, std::int64_t rows) { block(tile, row, rows); });
}

Value* DotEmitter::column_offset(Value* pointer, const Tile& tile, std::int64_t elements_per_column) {
  pointer = code_.offset(pointer, tile.first * elements_per_column * bytes_);
  return tile.loop_columns == nullptr ? pointer
                                      : code_.offset(pointer, tile.loop_columns, elements_per_column * bytes_);
}

Value* DotEmitter::b_of(const Segment& segment, const Tile& tile) {
  if (!segment.packed) return column_offset(segment.b, tile, segment.b_n);
  // Panels begin at (first column) * depth.
  if (tile.side == 0 || tile.side % tile.panel_vectors == 0) return column_offset(segment.b, tile, segment.depth);
  Value* within = code_.b.CreateURem(tile.loop_columns, code_.i64(tile.panel_vectors * std::int64_t{lanes_}));
  Value* panel = code_.b.CreateSub(tile.loop_columns, within);
  return code_.offset(code_.offset(segment.b, panel, segment.depth * bytes_), within, bytes_);
}

std::int64_t DotEmitter::num_row_blocks(const Tile& tile) const {
  const std::int64_t m = dot_.m.bound, blocks = divided_up(m, most_rows(tile));
  if (!summed_ || m <= blocks) return blocks;
  // One block more reads B no more often than a pass of its own would for the sums.
  const std::int64_t height = summed_ == Summed::Rows ? divided_up(m, blocks) : m / blocks;
  return leaves_room(height, tile) ? blocks : blocks + 1;
}

void DotEmitter::unless_cancelled(const std::function<void()>& body) {
  if (cancel_ == nullptr) return body();
  code_.when(code_.b.CreateNot(code_.is_cancelled(cancel_)), body);
}

void DotEmitter::row_blocks(const Tile& tile, const std::function<void(Value*, std::int64_t)>& body) {
  const std::int64_t blocks = num_row_blocks(tile);
  if (blocks == 0) return;
  const std::int64_t height = divided_up(dot_.m.bound, blocks);
  if (dot_.m.is_static()) {
    for (const RowRange& range : row_ranges(tile)) {
      sums_here_ = summed_ == Summed::Rows || (summed_ && range.end == dot_.m.bound);
      code_.loop(code_.i64(range.begin), code_.i64(range.end), range.height,
                 [&](Value* row) { unless_cancelled([&] { body(row, range.height); }); });
    }
    sums_here_ = false;
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
  if (tile.active != nullptr && vector + 1 == tile.vectors) return code_.tail_mask(lanes_, tile.active, lanes_);
  if (vector + 1 < tile.vectors || tile.last_lanes == lanes_) return nullptr;
  return code_.tail_mask(lanes_, code_.i64(tile.last_lanes));
}

void DotEmitter::block(const Tile& tile, Value* row, std::int64_t rows) {
  Values accumulators = initial(tile, row, rows);
  append_sums(accumulators, tile, row, rows, false);
  ahead_ = waits_for_init(tile) ? next_init(tile, row) : nullptr;
  ahead_vectors_ = tile.next.vectors;
  for (const Segment& segment : segments_) {
    Value* a = code_.offset(segment.a, row, segment.a_m * bytes_);
    next_lines_ = lines_of_next_tile(segment, tile, row, rows);
    accumulators = steps(segment, 0, tile, rows, a, b_of(segment, tile), accumulators);
  }
  next_lines_.reset();
  take_sums(accumulators, tile, row, rows);
  store_c(accumulators, tile, row, rows);
}

void DotEmitter::store_c(Values values, const Tile& tile, Value* row, std::int64_t rows) {
  if (code_.held != nullptr) code_.held->writes(dot_.c.buffer);
  Value* c = address_of_c(tile, row);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (int j = 0; j < tile.vectors; ++j) {
      Value* to = code_.offset(c, (i * dot_.c_m + tile.at(j) * lanes_ * dot_.c_n) * bytes_);
      code_.store(dot_.dtype, at(values, tile, i, j), to, dot_.c_n, lanes_, tail_of(tile, j));
    }
  }
}

Value* DotEmitter::address_of_c(const Tile& tile, Value* row) {
  return code_.offset(tile.c_stays ? c_ : column_offset(c_, tile, dot_.c_n), row, dot_.c_m * bytes_);
}

Values DotEmitter::from_c(const Tile& tile, Value* row, std::int64_t rows) {
  Values values;
  Value* c = address_of_c(tile, row);
  for (std::int64_t i = 0; i < rows; ++i)
    for (int j = 0; j < tile.vectors; ++j)
      values.push_back(code_.load(dot_.dtype, code_.offset(c, (i * dot_.c_m + tile.at(j) * lanes_ * dot_.c_n) * bytes_),
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
      Value* pointer = code_.offset(from, (i * dot_.init_m + tile.at(j) * lanes_ * dot_.init_n) * bytes_);
      Value* mask = dot_.init_n == 0 ? nullptr : tail_of(tile, j);
      at(values, tile, i, j) = code_.load(dot_.dtype, pointer, dot_.init_n, lanes_, mask);
    }
  }
  return values;
}

bool DotEmitter::waits_for_init(const Tile& tile) const {
  constexpr std::int64_t deep = 128;  // one more instruction for each vector is nothing
  return init_ != nullptr && dot_.init_m != 0 && dot_.init_n == 1 && tile.next.column != nullptr && lanes_ > 1 &&
         std::ranges::any_of(segments_, [](const Segment& s) { return s.depth >= deep; });
}

Value* DotEmitter::next_init(const Tile& tile, Value* row) {
  Value* here = code_.offset(column_offset(init_, tile, dot_.init_n), row, dot_.init_m * bytes_);
  Value* columns = code_.b.CreateSub(tile.next.column, tile.loop_columns);
  return code_.offset(code_.offset(here, columns, bytes_), tile.next.rows, dot_.init_m * bytes_);
}

std::optional<DotEmitter::NextLines> DotEmitter::lines_of_next_tile(const Segment& segment, const Tile& tile,
                                                                    Value* row, std::int64_t rows) {
  constexpr std::int64_t most_blocks = 16;  // what one of more of them waits for is a small part
  if (tile.next.column == nullptr || tile.loop_columns == nullptr || lanes_ == 1) return std::nullopt;
  if (segment.k.size() != 1 || !segment.k[0].extent.is_static()) return std::nullopt;
  const bool is_dense =
      segment.packed ? tile.vectors == tile.panel_vectors : segment.b_n == 1 && !reads_transposed(segment, 0);
  const std::int64_t blocks = num_row_blocks(tile), l2_bytes = code_.state().program.target.l2_bytes_there;
  std::int64_t depth = 0;
  for (const Segment& s : segments_) depth += s.depth;
  // This tile and the next one must find room in the second cache, beside A.
  const bool comes_from_far = depth * dot_.n.bound * bytes_ > l2_bytes,
             has_room = 2 * depth * tile.vectors * lanes_ * bytes_ <= l2_bytes / 4 * 3;
  if (!is_dense || blocks < 2 || blocks > most_blocks || !comes_from_far || !has_room) return std::nullopt;
  Tile next = tile;
  next.loop_columns = tile.next.column;
  const std::int64_t lines = segment.k[0].extent.bound * tile.vectors;
  return NextLines{b_of(segment, next), code_.b.CreateMul(row, code_.i64(lines)), rows * tile.vectors, tile.vectors,
                   dot_.m.bound};
}

void DotEmitter::fetch(const NextLines& next, Value* k, std::int64_t b_bytes) {
  const std::int64_t line_bytes = lanes_ * bytes_, all_rows = next.all_rows;
  Value* first = code_.b.CreateAdd(next.first, code_.b.CreateMul(k, code_.i64(next.a_step)));
  first = code_.b.CreateUDiv(first, code_.i64(all_rows));
  for (std::int64_t i = 0; i * all_rows < next.a_step; ++i) {
    Value* line = code_.b.CreateAdd(first, code_.i64(i));
    if (b_bytes == next.vectors * line_bytes) {
      prefetch(code_.offset(next.b, line, line_bytes), Cache::Second);
      continue;
    }
    Value* step = code_.offset(next.b, code_.b.CreateUDiv(line, code_.i64(next.vectors)), b_bytes);
    Value* vector = code_.offset(step, code_.b.CreateURem(line, code_.i64(next.vectors)), line_bytes);
    prefetch(end_of(vector), Cache::Second);
  }
}

void DotEmitter::prefetch(Value* line, Cache cache) {
  code_.b.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {line->getType()},
      {line, code_.b.getInt32(0), code_.b.getInt32(static_cast<std::uint32_t>(cache)), code_.b.getInt32(1)});
}
}  // namespace hotloop::codegen
