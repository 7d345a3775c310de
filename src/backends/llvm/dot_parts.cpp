// Deep products, such as the gradient of a weight over all steps.
#include "backends/llvm/dot_emitter.h"

#include <algorithm>

#include "core/index.h"

namespace hotloop::codegen {

using kernel::KDim;
using Values = Code::Values;

bool DotEmitter::is_deep(const Tile& tile) const {
  constexpr std::int64_t enough_blocks = 4, enough_parts = 2;
  if (std::ranges::any_of(segments_, [](const Segment& s) { return s.packed; })) return false;
  const std::int64_t blocks = dot_.m.bound / most_rows(tile);
  if (blocks < enough_blocks) return false;
  return std::ranges::all_of(segments_, [&](const Segment& s) {
    return (s.b_n > 1 && dot_.n.bound > 1) || s.depth >= enough_parts * part_steps(tile);
  });
}

std::int64_t DotEmitter::part_steps(const Tile& tile) const {
  return std::max<std::int64_t>(1, code_.state().program.target.l1_bytes / 2 / (tile.vectors * kernel::vector_bytes));
}

bool DotEmitter::is_one_part(const Tile& tile) const {
  const auto is_static = [](const KDim& k) { return k.extent.is_static() && k.extent.bound > 0; };
  return segments_.size() == 1 && segments_[0].depth <= part_steps(tile) &&
         std::ranges::all_of(segments_[0].k, is_static);
}

void DotEmitter::begin_in_c(const Tile& tile) {
  if (starts_from_c(dot_)) return;
  row_blocks(tile, [&](Value* row, std::int64_t rows) { store_c(initial(tile, row, rows), tile, row, rows); });
}

bool DotEmitter::reads_bands(const Tile& widest) const {
  const kernel::Target& target = code_.state().program.target;
  std::int64_t bytes = 0;
  for (const Segment& s : segments_) {
    const auto is_static = [](const KDim& k) { return k.extent.is_static(); };
    if (s.packed || s.b_n != 1 || !std::ranges::all_of(s.k, is_static)) return false;
    bytes += s.depth * dot_.n.bound * bytes_;
  }
  if (dot_.pairs || lanes_ == 1) return false;
  if (num_row_blocks(widest) > 1) return bytes > target.far_bytes() && !is_deep(widest);
  // One row waits for the second cache as well, since it uses each number once.
  const std::int64_t near_bytes = dot_.m.bound == 1 ? target.l2_bytes / 16 : target.l2_bytes / 2;
  return dot_.m.is_static() && bytes > near_bytes;
}

void DotEmitter::bands() {
  walk_.turns = false;
  if (!starts_from_c(dot_)) all_columns([&](const Tile& tile) { begin_in_c(tile); });
  for (const Segment& segment : segments_) bands_of(segment, 0, segment.a, segment.b);
}

void DotEmitter::bands_of(const Segment& segment, std::size_t d, Value* a, Value* b) {
  const std::int64_t a_step = segment.k[d].a_stride * bytes_, b_step = segment.k[d].b_stride * bytes_;
  if (d + 1 < segment.k.size()) {
    code_.loop(code_.i64(0), segment.extents[d], 1,
               [&](Value* k) { bands_of(segment, d + 1, code_.offset(a, k, a_step), code_.offset(b, k, b_step)); });
    return;
  }
  // Lines enough to hide what accumulators take to come and go, and no more than a processor follows at a time.
  const std::int64_t k = segment.k[d].extent.bound, lines = dot_.m.bound == 1 ? 8 : 16, main = k / lines * lines;
  const auto bands = [&](std::int64_t begin, std::int64_t end, std::int64_t count) {
    code_.loop(code_.i64(begin), code_.i64(end), std::max<std::int64_t>(1, count), [&](Value* at) {
      Value *a_k = code_.offset(a, at, a_step), *b_k = code_.offset(b, at, b_step);
      all_columns([&](const Tile& tile) {
        row_blocks(tile, [&](Value* row, std::int64_t rows) {
          Values sums = from_c(tile, row, rows);
          Value* of_rows = code_.offset(a_k, row, segment.a_m * bytes_);
          Value* of_columns = column_offset(b_k, tile, 1);
          for (std::int64_t u = 0; u < count; ++u)
            step(segment, tile, rows, code_.offset(of_rows, u * a_step), code_.offset(of_columns, u * b_step), sums);
          store_c(sums, tile, row, rows);
        });
      });
    });
  };
  bands(0, main, lines);
  bands(main, k, k - main);
}

void DotEmitter::parts(const Tile& tile) {
  const bool is_whole = is_one_part(tile);
  if (!is_whole) begin_in_c(tile);
  if (!is_whole && summed_) clear_sums(tile);
  Value* const packed = part_buffer(part_steps(tile) * tile.vectors * kernel::vector_bytes);
  Tile beside = tile;
  beside.panel_vectors = tile.vectors;
  for (const Segment& segment : segments_) {
    Segment part = segment;
    part.packed = true;
    cut(segment, 0, part_steps(tile), segment.a, column_offset(segment.b, tile, segment.b_n), [&](const Part& of) {
      pack_part(segment, of.dim, of.length, tile, of.b, packed);
      row_blocks(tile, [&](Value* row, std::int64_t rows) {
        Values carried = is_whole ? initial(tile, row, rows) : from_c(tile, row, rows);
        append_sums(carried, tile, row, rows, !is_whole);
        carried.push_back(packed);
        carried =
            part_of(part, of.dim, of.length, beside, rows, code_.offset(of.a, row, segment.a_m * bytes_), carried);
        carried.pop_back();
        take_sums(carried, tile, row, rows);
        store_c(carried, tile, row, rows);
      });
    });
  }
}

void DotEmitter::cut(const Segment& segment, std::size_t d, std::int64_t steps, Value* a, Value* b,
                     const std::function<void(const Part&)>& body) {
  const std::int64_t a_step = segment.k[d].a_stride * bytes_, b_step = segment.k[d].b_stride * bytes_;
  std::int64_t inner = 1;  // steps of one iteration
  for (std::size_t i = d + 1; i < segment.k.size(); ++i) inner *= segment.k[i].extent.bound;
  if (inner > steps) {
    code_.loop(code_.i64(0), segment.extents[d], 1, [&](Value* k) {
      cut(segment, d + 1, steps, code_.offset(a, k, a_step), code_.offset(b, k, b_step), body);
    });
    return;
  }
  const std::int64_t bound = std::max<std::int64_t>(1, segment.k[d].extent.bound), most = steps / inner;
  const std::int64_t num_parts = divided_up(bound, most), count = divided_up(bound, num_parts);
  code_.loop(code_.i64(0), segment.extents[d], count, [&](Value* begin) {
    Value* length = segment.extents[d];
    if (num_parts > 1)
      length = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, code_.i64(count),
                                             code_.b.CreateSub(segment.extents[d], begin));
    body({d, length, code_.offset(a, begin, a_step), code_.offset(b, begin, b_step)});
  });
}

bool DotEmitter::is_large(const Tile& tile) const {
  constexpr std::int64_t enough_steps = 64;  // to pay for packing
  // A tile of one vector waits for the third cache, a wider one only for memory: of what all cores share, one can count on a few megabytes.
  const bool narrow = tile.vectors == 1;
  const std::int64_t l2_bytes = code_.state().program.target.l2_bytes, few_tiles = narrow ? 2 : 3,
                     enough_bytes = narrow ? l2_bytes / 4 : 4 * l2_bytes;
  if (!dot_.m.is_static() || !dot_.n.is_static() || dot_.pairs) return false;
  const bool few_columns = dot_.n.bound <= few_tiles * tile.vectors * lanes_;
  return std::ranges::all_of(segments_, [&](const Segment& s) {
    if (s.packed || s.a_m != 1 || s.depth < enough_steps) return false;
    // Steps so many pages apart have one set of the first cache, a few of the second, and a page each: what a line holds for the next block of rows is gone
    // until that comes, for a single tile of columns, too.
    constexpr std::int64_t far = 8192;
    const std::int64_t step = s.k.empty() ? 0 : s.k.back().a_stride * bytes_;
    const bool is_far = step != 0 && step % far == 0;
    return (is_far || !few_columns) && dot_.m.bound * s.depth * bytes_ > (is_far ? l2_bytes : enough_bytes);
  });
}

void DotEmitter::blocks_of_a(const Tile& widest) {
  constexpr std::int64_t block_bytes = 128 << 10;  // on the stack, and with room for the rest in the second cache
  all_columns([&](const Tile& tile) { begin_in_c(tile); });
  std::int64_t deepest = 1;
  for (const Segment& segment : segments_) deepest = std::max(deepest, segment.depth);
  const std::int64_t steps = std::min(part_steps(widest), deepest),
                     b_bytes = steps * widest.vectors * kernel::vector_bytes;
  Value* const packed = part_buffer(b_bytes + block_bytes);
  Value* const block = code_.offset(packed, b_bytes);
  for (const Segment& segment : segments_)
    cut(segment, 0, steps, segment.a, segment.b, [&](const Part& part) {
      Value* depth = part.length;
      for (std::size_t d = part.dim + 1; d < segment.k.size(); ++d)
        depth = code_.b.CreateMul(depth, segment.extents[d]);
      for (const RowRange& range : row_ranges(widest)) {
        const std::int64_t group =
            std::max<std::int64_t>(1, block_bytes / (steps * bytes_ * range.height)) * range.height;
        code_.loop(code_.i64(range.begin), code_.i64(range.end), group, [&](Value* first) {
          unless_cancelled([&] {
            Value* end = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, code_.i64(range.end),
                                                       code_.b.CreateAdd(first, code_.i64(group)));
            pack_rows(segment, part.dim, part.length, code_.offset(part.a, first, bytes_),
                      code_.b.CreateSub(end, first), range.height, depth, block);
            all_columns([&](const Tile& tile) {
              pack_part(segment, part.dim, part.length, tile, column_offset(part.b, tile, segment.b_n), packed);
              code_.loop(first, end, range.height, [&](Value* row) {
                Value* a = code_.b.CreateMul(code_.b.CreateSub(row, first), depth);
                store_c(packed_steps(segment, tile, range.height, depth, code_.offset(block, a, bytes_), packed,
                                     from_c(tile, row, range.height)),
                        tile, row, range.height);
              });
            });
          });
        });
      }
    });
}

Value* DotEmitter::pack_rows(const Segment& segment, std::size_t d, Value* extent, Value* a, Value* rows,
                             std::int64_t height, Value* depth, Value* to) {
  constexpr std::int64_t some = 4;
  const std::int64_t a_step = segment.k[d].a_stride * bytes_;
  const auto run = [&](Value* begin, Value* end, std::int64_t count, Value* start) {
    return code_.loop(begin, end, count, {start}, [&](Value* k, const Values& carried) -> Values {
      Value* from = code_.offset(a, k, a_step);
      if (d + 1 < segment.k.size())
        return {pack_rows(segment, d + 1, segment.extents[d + 1], from, rows, height, depth, carried[0])};
      code_.loop(code_.i64(0), rows, height, [&](Value* row) {
        Value* source = code_.offset(from, row, bytes_);
        Value* target = code_.offset(carried[0], code_.b.CreateMul(row, depth), bytes_);
        for (std::int64_t u = 0; u < count; ++u)
          code_.store(dot_.dtype,
                      code_.load(dot_.dtype, code_.offset(source, u * a_step), 1, static_cast<int>(height), nullptr),
                      code_.offset(target, u * height * bytes_), 1, static_cast<int>(height), nullptr);
      });
      return {code_.offset(carried[0], count * height * bytes_)};
    })[0];
  };
  if (d + 1 < segment.k.size()) return run(code_.i64(0), extent, 1, to);
  Value* main = code_.b.CreateSub(extent, code_.b.CreateURem(extent, code_.i64(some)));
  return run(main, extent, 1, run(code_.i64(0), main, some, to));
}

Values DotEmitter::packed_steps(const Segment& segment, const Tile& tile, std::int64_t rows, Value* depth, Value* a,
                                Value* b, Values accumulators) {
  Segment packed = segment;
  packed.packed = true;
  const std::int64_t a_step = rows * bytes_, b_step = tile.vectors * lanes_ * bytes_;
  const auto run = [&](Value* begin, Value* end, std::int64_t count) {
    accumulators = code_.loop(begin, end, count, accumulators, [&](Value* k, Values now) {
      Value *a_k = code_.offset(a, k, a_step), *b_k = code_.offset(b, k, b_step);
      for (std::int64_t u = 0; u < count; ++u)
        step(packed, tile, rows, code_.offset(a_k, u * a_step), code_.offset(b_k, u * b_step), now);
      return now;
    });
  };
  constexpr std::int64_t unroll = 4;
  Value* main = code_.b.CreateSub(depth, code_.b.CreateURem(depth, code_.i64(unroll)));
  run(code_.i64(0), main, unroll);
  run(main, depth, 1);
  return accumulators;
}

Value* DotEmitter::part_buffer(std::int64_t bytes) {
  if (part_buffer_ == nullptr) {
    part_buffer_ = code_.stack_room(code_.b.getInt8Ty(), 0);
    part_buffer_->setAlignment(llvm::Align(kernel::vector_bytes));
  }
  part_bytes_ = std::max(part_bytes_, bytes);
  part_buffer_->setAllocatedType(llvm::ArrayType::get(code_.b.getInt8Ty(), static_cast<std::uint64_t>(part_bytes_)));
  return part_buffer_;
}

Value* DotEmitter::pack_part(const Segment& segment, std::size_t d, Value* extent, const Tile& tile, Value* b,
                             Value* to) {
  Value* begin = code_.i64(0);
  if (d + 1 == segment.k.size() && reads_transposed(segment, d)) {
    const auto squares = [&](Value* first, Value* last, int count) {
      to = code_.loop(first, last, count, {to}, [&](Value* k, const Values& carried) -> Values {
        Value* from = code_.offset(b, k, bytes_);
        for (int j = 0; j < tile.vectors; ++j) {
          code_.copy_transposed(factor_dtype(dot_), code_.offset(from, j * lanes_ * segment.b_n * bytes_), segment.b_n,
                                j + 1 == tile.vectors ? tile.last_lanes : lanes_, count,
                                code_.offset(carried[0], j * lanes_ * bytes_), tile.vectors * lanes_);
        }
        return {code_.offset(carried[0], count * tile.vectors * lanes_ * bytes_)};
      })[0];
    };
    Value* rest = code_.b.CreateURem(extent, code_.i64(lanes_));
    Value* whole = code_.b.CreateSub(extent, rest);
    squares(begin, whole, lanes_);
    begin = whole;
    if (const auto* left = llvm::dyn_cast<llvm::ConstantInt>(rest); left != nullptr && !left->isZero()) {
      squares(begin, extent, static_cast<int>(left->getSExtValue()));
      begin = extent;
    }
  }
  const Values end = code_.loop(begin, extent, 1, {to}, [&](Value* k, const Values& carried) -> Values {
    Value* from = code_.offset(b, k, segment.k[d].b_stride * bytes_);
    if (d + 1 < segment.k.size()) return {pack_part(segment, d + 1, segment.extents[d + 1], tile, from, carried[0])};
    for (int j = 0; j < tile.vectors; ++j)
      code_.store(factor_dtype(dot_), load_b(segment, tile, from, j), code_.offset(carried[0], j * lanes_ * bytes_), 1,
                  lanes_, nullptr);
    return {code_.offset(carried[0], tile.vectors * lanes_ * bytes_)};
  });
  return end[0];
}

Values DotEmitter::part_of(const Segment& segment, std::size_t d, Value* extent, const Tile& tile, std::int64_t rows,
                           Value* a, const Values& carried) {
  const std::int64_t a_step = segment.k[d].a_stride * bytes_, b_step = tile.vectors * lanes_ * bytes_;
  if (d + 1 < segment.k.size()) {
    return code_.loop(code_.i64(0), extent, 1, carried, [&](Value* k, const Values& now) {
      return part_of(segment, d + 1, segment.extents[d + 1], tile, rows, code_.offset(a, k, a_step), now);
    });
  }
  const auto run = [&](Value* begin, Value* end, std::int64_t count, const Values& from) {
    return code_.loop(begin, end, count, from, [&](Value* k, Values now) {
      Value* b = now.back();
      now.pop_back();
      Value* a_k = code_.offset(a, k, a_step);
      for (std::int64_t u = 0; u < count; ++u)
        step(segment, tile, rows, code_.offset(a_k, u * a_step), code_.offset(b, u * b_step), now);
      now.push_back(code_.offset(b, count * b_step));
      return now;
    });
  };
  const std::int64_t unroll = std::clamp<std::int64_t>(24 / (rows * tile.vectors), 1, 4);
  if (unroll == 1) return run(code_.i64(0), extent, 1, carried);
  Value* main = code_.b.CreateSub(extent, code_.b.CreateURem(extent, code_.i64(unroll)));
  return run(main, extent, 1, run(code_.i64(0), main, unroll, carried));
}

}  // namespace hotloop::codegen
