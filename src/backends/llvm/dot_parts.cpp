// Deep products, such as the gradient of a weight over all steps.
#include "backends/llvm/dot_emitter.h"

#include <algorithm>

#include "core/index.h"
#include "schedule/footprint.h"

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
  return segments_.size() == 1 && segments_[0].depth <= part_steps(tile) && has_static_steps(segments_[0].k);
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
    const AtStep begin{segment.a, column_offset(segment.b, tile, segment.b_n), code_.i64(0)};
    cut(segment, 0, part_steps(tile), begin, [&](const Part& of) {
      pack_part(segment, of.dim, of.length, tile, of.at.b, packed);
      row_blocks(tile, [&](Value* row, std::int64_t rows) {
        Values carried = is_whole ? initial(tile, row, rows) : from_c(tile, row, rows);
        append_sums(carried, tile, row, rows, !is_whole);
        carried.push_back(packed);
        carried =
            part_of(part, of.dim, of.length, beside, rows, code_.offset(of.at.a, row, segment.a_m * bytes_), carried);
        carried.pop_back();
        take_sums(carried, tile, row, rows);
        store_c(carried, tile, row, rows);
      });
    });
  }
}

void DotEmitter::cut(const Segment& segment, std::size_t d, std::int64_t steps, const AtStep& at,
                     const std::function<void(const Part&)>& body) {
  const std::int64_t a_step = segment.k[d].a_stride * bytes_, b_step = segment.k[d].b_stride * bytes_;
  std::int64_t inner = 1;  // steps of one iteration
  for (std::size_t i = d + 1; i < segment.k.size(); ++i) inner *= segment.k[i].extent.bound;
  const auto from = [&](Value* k) {
    return AtStep{code_.offset(at.a, k, a_step), code_.offset(at.b, k, b_step),
                  code_.b.CreateAdd(at.step, code_.b.CreateMul(k, code_.i64(inner)))};
  };
  if (inner > steps) {
    code_.loop(code_.i64(0), segment.extents[d], 1, [&](Value* k) { cut(segment, d + 1, steps, from(k), body); });
    return;
  }
  const std::int64_t bound = std::max<std::int64_t>(1, segment.k[d].extent.bound), most = steps / inner;
  const std::int64_t num_parts = divided_up(bound, most), count = divided_up(bound, num_parts);
  code_.loop(code_.i64(0), segment.extents[d], count, [&](Value* begin) {
    Value* length = segment.extents[d];
    if (num_parts > 1)
      length = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, code_.i64(count),
                                             code_.b.CreateSub(segment.extents[d], begin));
    body({d, length, from(begin)});
  });
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

void DotEmitter::pack_step(const Segment& segment, const Tile& tile, Value* b, Value* to) {
  for (int j = 0; j < tile.vectors; ++j)
    code_.store(factor_dtype(dot_), load_b(segment, tile, b, j), code_.offset(to, j * lanes_ * bytes_), 1, lanes_,
                nullptr);
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
    pack_step(segment, tile, from, carried[0]);
    return {code_.offset(carried[0], tile.vectors * lanes_ * bytes_)};
  });
  return end[0];
}

bool DotEmitter::fetches_rows(const Segment& segment, const Tile& tile, std::int64_t rows) const {
  constexpr std::int64_t enough_products = 20;  // of vectors in a step, to hide one instruction
  const std::int64_t lines_bytes = std::min(part_steps(tile), segment.depth) * dot_.m.bound * bytes_;
  return segment.a_m == 1 && rows * tile.vectors >= enough_products &&
         lines_bytes > code_.state().program.target.l1_bytes / 2;
}

Values DotEmitter::part_of(const Segment& segment, std::size_t d, Value* extent, const Tile& tile, std::int64_t rows,
                           Value* a, const Values& carried) {
  const std::int64_t a_step = segment.k[d].a_stride * bytes_, b_step = tile.vectors * lanes_ * bytes_;
  if (d + 1 < segment.k.size()) {
    return code_.loop(code_.i64(0), extent, 1, carried, [&](Value* k, const Values& now) {
      return part_of(segment, d + 1, segment.extents[d + 1], tile, rows, code_.offset(a, k, a_step), now);
    });
  }
  const bool fetches = fetches_rows(segment, tile, rows);
  constexpr std::int64_t ahead = 128;  // what the blocks after the next one begin with
  const auto run = [&](Value* begin, Value* end, std::int64_t count, const Values& from) {
    return code_.loop(begin, end, count, from, [&](Value* k, Values now) {
      Value* b = now.back();
      now.pop_back();
      Value* a_k = code_.offset(a, k, a_step);
      for (std::int64_t u = 0; u < count; ++u) {
        if (fetches) prefetch(code_.offset(a_k, u * a_step + ahead), Cache::First);
        step(segment, tile, rows, code_.offset(a_k, u * a_step), code_.offset(b, u * b_step), now);
      }
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
