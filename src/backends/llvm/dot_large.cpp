// Large products, of which not everything is near that is read again and again. k is cut into parts; of each part rows are taken in groups, and all columns pass
// over a group before the next one comes, so that A comes from far once a part, and a tile's columns of B once a group. What lies in pieces far apart is
// packed as it is read. While a block of rows is multiplied it fetches some of what comes next, a line or a few every four steps: the next tile's columns of B,
// and what the next block finds in C; and, where registers are left for that, it packs a piece of the next group's rows, which come from far. In C sums wait
// between parts, so that an element's products are added in the order of the kernel IR.
// After K. Goto and R. van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34(3), 2008.
#include "backends/llvm/dot_emitter.h"

#include <algorithm>
#include <cstdint>

#include "core/index.h"
#include "schedule/footprint.h"

namespace hotloop::codegen {

using Values = Code::Values;

namespace {

constexpr std::int64_t unroll = 4;  // steps between fetches

// As many of `all` at a time as `most` allows, and as many each time as can be.
std::int64_t even_share(std::int64_t all, std::int64_t most) {
  return divided_up(all, divided_up(all, std::max<std::int64_t>(1, most)));
}

}  // namespace

bool DotEmitter::packs_rows(const Segment& segment) const { return segment.a_m == 1; }

bool DotEmitter::is_large() const {
  const std::optional<Tile> widest = widest_tile();
  return widest && is_large(*widest);
}

bool DotEmitter::is_large(const Tile& widest) const {
  constexpr std::int64_t enough_rows = 24, enough_steps = 64, deep = 128;  // to pay for packing, or for visits to C
  if (!dot_.m.is_static() || !dot_.n.is_static() || dot_.pairs || dot_.m.bound < enough_rows) return false;
  if (lanes_ != kernel::lanes_of(dot_.dtype)) return false;  // too few columns to fill a vector
  std::int64_t a_bytes = 0, all_bytes = dot_.m.bound * dot_.n.bound * bytes_, least_depth = segments_[0].depth;
  bool packs_a = false, packs_b = false;
  for (const Segment& s : segments_) {
    if (s.packed && !has_static_steps(s.k)) return false;
    if (!packs_rows(s) && (s.k.size() != 1 || s.k[0].a_stride != 1)) return false;
    a_bytes += dot_.m.bound * s.depth * bytes_;
    all_bytes += (dot_.m.bound + dot_.n.bound) * s.depth * bytes_;
    least_depth = std::min(least_depth, s.depth);
    packs_a = packs_a || packs_rows(s);
    packs_b = packs_b || !s.packed;
  }
  if (least_depth < enough_steps) return false;
  // What follows is by measurement (Granite Rapids). A small A stays where it is; few tiles of columns pay for packing one factor, not both; a B that is to be
  // packed pays for all of it where it would come from the second cache.
  const std::int64_t l2_bytes = code_.state().program.target.l2_bytes_there;
  const bool leaves_room = a_bytes <= l2_bytes / 8;
  if (dot_.n.bound <= 2 * widest.vectors * lanes_) return !leaves_room && packs_a != packs_b;
  if (!packs_b) return !leaves_room;
  return all_bytes > l2_bytes / (packs_a ? 2 : 8) && (!leaves_room || least_depth >= deep);
}

DotEmitter::LargeCut DotEmitter::large_cut(const Tile& widest) const {
  const bool packs_b = std::ranges::any_of(segments_, [](const Segment& s) { return !s.packed; });
  // Of a part: what is packed has more use of room in the second cache, what is not of fewer visits to C. Rows on the stack are to be no burden.
  const std::int64_t most_steps = packs_b ? 256 : 512, near_bytes = code_.state().program.target.l2_bytes_there / 8,
                     group_bytes = std::min<std::int64_t>(near_bytes, 128 << 10),
                     tile_bytes = widest.vectors * lanes_ * bytes_;
  std::int64_t depth = 1;
  for (const Segment& segment : segments_) depth = std::max(depth, segment.depth);
  const std::vector<RowRange> ranges = row_ranges(widest);
  LargeCut cut;
  cut.steps = even_share(depth, std::min(most_steps, near_bytes / tile_bytes));
  cut.columns = widest.vectors * lanes_;
  cut.height = ranges[0].height;
  cut.high_rows = ranges[0].end;
  cut.low_height = ranges.back().height;
  cut.group = even_share(cut.high_rows / cut.height, group_bytes / (cut.steps * bytes_ * cut.height)) * cut.height;
  return cut;
}

void DotEmitter::large(const Tile& widest) {
  const LargeCut shape = large_cut(widest);
  const bool packs_a = std::ranges::any_of(segments_, [&](const Segment& s) { return packs_rows(s); });
  const bool packs_b = std::ranges::any_of(segments_, [](const Segment& s) { return !s.packed; });
  const std::int64_t b_bytes = packs_b ? shape.steps * widest.vectors * kernel::vector_bytes : 0,
                     low_bytes = (dot_.m.bound - shape.high_rows) * shape.steps * bytes_,
                     rooms = shape.group < shape.high_rows && has_registers_to_pack() ? 2 : 1,
                     a_bytes = packs_a ? rooms * shape.group * shape.steps * bytes_ + low_bytes : 0;
  RowGroup group;
  if (packs_a || packs_b) {
    group.packed_b = part_buffer(b_bytes + a_bytes);
    group.packed_low = code_.offset(group.packed_b, b_bytes);
    group.packed_a = code_.offset(group.packed_low, low_bytes);
  }
  if (packs_a && rooms > 1) group.next = next_rows(shape, group.packed_a);
  if (summed_) clear_sums(widest);
  // A number of steps known at run time may be none, and sums must begin nonetheless.
  const bool begins_apart = !has_static_steps(segments_[0].k);
  if (begins_apart) all_columns([&](const Tile& tile) { begin_in_c(tile); });
  Value* const high_end = code_.i64(shape.high_rows);
  for (const Segment& segment : segments_) {
    const bool may_begin = &segment == segments_.data() && !begins_apart && !starts_from_c(dot_);
    cut(segment, 0, shape.steps, {segment.a, segment.b, code_.i64(0)}, [&](const Part& part) {
      group.depth = part.length;
      for (std::size_t d = part.dim + 1; d < segment.k.size(); ++d)
        group.depth = code_.b.CreateMul(group.depth, segment.extents[d]);
      group.begins = may_begin ? code_.b.CreateICmpEQ(part.at.step, code_.i64(0)) : code_.b.getFalse();
      code_.loop(code_.i64(0), high_end, shape.group, [&](Value* first) {
        unless_cancelled([&] {
          group.first = first;
          group.end = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, high_end,
                                                    code_.b.CreateAdd(first, code_.i64(shape.group)));
          group.low_end = code_.b.CreateSelect(code_.b.CreateICmpEQ(group.end, high_end), m_, high_end);
          group_of_rows(segment, part, shape, group);
        });
      });
    });
  }
}

void DotEmitter::group_of_rows(const Segment& segment, const Part& part, const LargeCut& shape, RowGroup group) {
  const bool packs_a = packs_rows(segment), has_low = shape.high_rows < dot_.m.bound,
             beside = group.next && packs_beside(segment, part);
  Value* const high_end = code_.i64(shape.high_rows);
  const auto pack = [&](Value* from, Value* to, std::int64_t height, Value* packed) {
    const RowsToPack rows{code_.b.CreateSub(to, from), height, group.depth,
                          summed_ ? code_.offset(sums_, from, bytes_) : nullptr};
    pack_rows(segment, part.dim, part.length, code_.offset(part.at.a, from, bytes_), rows, packed);
  };
  if (beside) begin_next_rows(segment, part, shape, group);
  if (packs_a) {
    Value* is_first = beside ? code_.b.CreateICmpEQ(group.first, code_.i64(0)) : code_.b.getTrue();
    code_.when(is_first, [&] { pack(group.first, group.end, shape.height, group.packed_a); });
  }
  if (packs_a && has_low)
    code_.when(code_.b.CreateICmpEQ(group.low_end, m_),
               [&] { pack(high_end, m_, shape.low_height, group.packed_low); });
  all_columns([&](const Tile& tile) {
    const std::int64_t panel_step = tile.panel_vectors * lanes_ * bytes_,
                       k_step = segment.k[part.dim].b_stride * bytes_;
    const bool is_line = part.dim + 1 == segment.k.size();  // of steps evenly spaced
    const auto b_at = [&](const Tile& of) {
      return segment.packed ? code_.offset(b_of(segment, of), part.at.step, panel_step)
                            : column_offset(part.at.b, of, segment.b_n);
    };
    LargeBlock block;
    block.group = shape.group;
    if (beside) block.next_rows = &*group.next;
    block.b = segment.packed ? b_at(tile) : group.packed_b;
    block.b_step = segment.packed ? panel_step : tile.vectors * lanes_ * bytes_;
    Value* next_c = nullptr;
    if (tile.next.column != nullptr && tile.loop_columns != nullptr) {
      Tile next = tile;
      next.loop_columns = tile.next.column;
      next_c = address_of_c(next, group.first);
      if (segment.packed || (is_line && segment.b_n == 1)) block.next_b = b_at(next);
      block.next_b_step = segment.packed ? panel_step : k_step;
    }
    const auto multiply = [&](Value* row, Value* first, std::int64_t height, Value* packed) {
      Value* next_row = code_.b.CreateAdd(row, code_.i64(height));
      block.row = code_.b.CreateSub(row, first);
      block.a = packs_a ? code_.offset(packed, code_.b.CreateMul(block.row, group.depth), bytes_)
                        : code_.offset(part.at.a, row, segment.a_m * bytes_);
      block.next_c = address_of_c(tile, next_row);
      if (next_c != nullptr)
        block.next_c = code_.b.CreateSelect(code_.b.CreateICmpEQ(next_row, group.low_end), next_c, block.next_c);
      const Values sums = code_.either(
          group.begins, [&] { return initial(tile, row, height); }, [&] { return from_c(tile, row, height); });
      store_c(large_block(segment, tile, height, group.depth, block, sums), tile, row, height);
    };
    Value* begin = group.first;
    if (!segment.packed && is_line && !reads_transposed(segment, part.dim)) {
      // The first block packs B beside its multiplications, in whose shadow that costs nothing.
      block.unpacked_b = b_at(tile);
      block.unpacked_b_step = k_step;
      multiply(begin, group.first, shape.height, group.packed_a);
      block.unpacked_b = nullptr;
      begin = code_.b.CreateAdd(begin, code_.i64(shape.height));
    } else if (!segment.packed) {
      pack_part(segment, part.dim, part.length, tile, b_at(tile), group.packed_b);
    }
    code_.loop(begin, group.end, shape.height,
               [&](Value* row) { multiply(row, group.first, shape.height, group.packed_a); });
    if (has_low)
      code_.loop(high_end, group.low_end, shape.low_height,
                 [&](Value* row) { multiply(row, high_end, shape.low_height, group.packed_low); });
  });
  if (beside) finish_next_rows(*group.next);
}

// Sums, columns and a row's number take 29 of 32 registers, or 15 of 16: there sums would wait in memory for what is packed, once in four steps, and a product
// would take twice as long.
bool DotEmitter::has_registers_to_pack() const { return kernel::has_wide_vectors(code_.state().program.target); }

bool DotEmitter::packs_beside(const Segment& segment, const Part& part) const {
  return packs_rows(segment) && part.dim + 2 >= segment.k.size();
}

DotEmitter::NextRows DotEmitter::next_rows(const LargeCut& shape, Value* rooms) {
  NextRows next;
  next.rooms = rooms;
  next.rows.height = shape.height;
  // Before the group's last turn all are to be packed.
  next.pieces = divided_up(unroll, divided_up(dot_.n.bound, shape.columns));
  for (Value** at : {&next.step, &next.block, &next.inner}) *at = code_.stack_room(code_.b.getInt64Ty(), 1);
  next.line = code_.stack_room(code_.b.getPtrTy(), 1);
  next.line->setName("next_line");
  return next;
}

void DotEmitter::begin_next_rows(const Segment& segment, const Part& part, const LargeCut& shape, RowGroup& group) {
  NextRows& next = *group.next;
  const auto bytes_between = [&](std::size_t d) { return code_.i64(segment.k[d].a_stride * bytes_); };
  Value* high_end = code_.i64(shape.high_rows);
  Value* end = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, high_end,
                                             code_.b.CreateAdd(group.end, code_.i64(shape.group)));
  // The two rooms change places from group to group.
  const std::int64_t room_bytes = shape.group * shape.steps * bytes_;
  Value* second = code_.b.CreateAnd(code_.b.CreateUDiv(group.first, code_.i64(shape.group)), code_.i64(1));
  group.packed_a = code_.offset(next.rooms, second, room_bytes);
  next.packed = code_.offset(next.rooms, code_.b.CreateXor(second, code_.i64(1)), room_bytes);
  next.rows.rows = code_.b.CreateSub(end, group.end);
  next.rows.depth = group.depth;
  next.rows.sums = summed_ ? code_.offset(sums_, group.end, bytes_) : nullptr;
  next.blocks = code_.b.CreateUDiv(next.rows.rows, code_.i64(shape.height));
  next.end = code_.b.CreateSelect(code_.b.CreateICmpSLT(group.end, high_end), group.depth, code_.i64(0));
  next.step_bytes = next.turn_bytes = bytes_between(part.dim);
  next.extent = part.length;
  if (part.dim + 1 < segment.k.size()) {
    next.step_bytes = bytes_between(part.dim + 1);
    next.extent = segment.extents[part.dim + 1];
    Value* last = code_.b.CreateSub(next.extent, code_.i64(1));
    next.turn_bytes = code_.b.CreateSub(next.turn_bytes, code_.b.CreateMul(last, next.step_bytes));
  }
  for (Value* at : {next.step, next.block, next.inner}) code_.b.CreateStore(code_.i64(0), at);
  code_.b.CreateStore(code_.offset(part.at.a, group.end, bytes_), next.line);
}

void DotEmitter::pack_piece(const NextRows& next) {
  const auto number = [&](Value* at) { return code_.b.CreateLoad(code_.b.getInt64Ty(), at); };
  const RowsToPack& rows = next.rows;
  const std::int64_t bytes = rows.height * bytes_;
  Value *step = number(next.step), *block = number(next.block), *inner = number(next.inner),
        *line = code_.b.CreateLoad(code_.b.getPtrTy(), next.line);
  Value* from = code_.offset(line, block, bytes);
  Value* to = code_.b.CreateAdd(code_.b.CreateMul(block, rows.depth), step);
  copy_steps(rows, 1, from, 0, code_.offset(next.packed, to, bytes),
             rows.sums == nullptr ? nullptr : code_.offset(rows.sums, block, bytes));
  prefetch(code_.offset(from, next.step_bytes, 1), Cache::First);
  // The next piece: of the next block, after the last one of the next step.
  const auto follows = [&](Value* at, Value* count, Value* moves) {
    Value* now = code_.b.CreateAdd(at, code_.b.CreateZExt(moves, code_.b.getInt64Ty()));
    Value* ends = code_.b.CreateICmpEQ(now, count);
    return std::pair{code_.b.CreateSelect(ends, code_.i64(0), now), ends};
  };
  const auto [next_block, step_ends] = follows(block, next.blocks, code_.b.getTrue());
  const auto [next_inner, turn_ends] = follows(inner, next.extent, step_ends);
  Value* bytes_on = code_.b.CreateSelect(turn_ends, next.turn_bytes, next.step_bytes);
  code_.b.CreateStore(next_block, next.block);
  code_.b.CreateStore(next_inner, next.inner);
  code_.b.CreateStore(code_.b.CreateAdd(step, code_.b.CreateZExt(step_ends, code_.b.getInt64Ty())), next.step);
  code_.b.CreateStore(code_.b.CreateSelect(step_ends, code_.offset(line, bytes_on, 1), line), next.line);
}

void DotEmitter::pack_pieces(const NextRows& next) {
  for (std::int64_t i = 0; i < next.pieces; ++i) {
    Value* step = code_.b.CreateLoad(code_.b.getInt64Ty(), next.step);
    code_.when(code_.b.CreateICmpULT(step, next.end), [&] { pack_piece(next); });
  }
}

void DotEmitter::finish_next_rows(const NextRows& next) {
  const auto number = [&](Value* at) { return code_.b.CreateLoad(code_.b.getInt64Ty(), at); };
  Value* done = code_.b.CreateAdd(code_.b.CreateMul(number(next.step), next.blocks), number(next.block));
  code_.loop(done, code_.b.CreateMul(next.end, next.blocks), 1, [&](Value*) { pack_piece(next); });
}

void DotEmitter::copy_steps(const RowsToPack& of, std::int64_t steps, Value* from, std::int64_t from_bytes, Value* to,
                            Value* sums_at) {
  const int lanes = static_cast<int>(of.height);
  Value* sums = sums_at == nullptr ? nullptr : code_.load(dot_.dtype, sums_at, 1, lanes, nullptr);
  for (std::int64_t u = 0; u < steps; ++u) {
    Value* value = code_.load(dot_.dtype, code_.offset(from, u * from_bytes), 1, lanes, nullptr);
    code_.store(dot_.dtype, value, code_.offset(to, u * of.height * bytes_), 1, lanes, nullptr);
    if (sums != nullptr) sums = code_.op(ir::ScalarOp::Add, dot_.dtype, dot_.dtype, {sums, value});
  }
  if (sums != nullptr) code_.store(dot_.dtype, sums, sums_at, 1, lanes, nullptr);
}

Value* DotEmitter::pack_rows(const Segment& segment, std::size_t d, Value* extent, Value* a, const RowsToPack& of,
                             Value* to) {
  constexpr std::int64_t some = 4;
  const std::int64_t a_step = segment.k[d].a_stride * bytes_, height = of.height;
  const auto run = [&](Value* begin, Value* end, std::int64_t count, Value* start) {
    return code_.loop(begin, end, count, {start}, [&](Value* k, const Values& carried) -> Values {
      Value* from = code_.offset(a, k, a_step);
      if (d + 1 < segment.k.size()) return {pack_rows(segment, d + 1, segment.extents[d + 1], from, of, carried[0])};
      code_.loop(code_.i64(0), of.rows, height, [&](Value* row) {
        Value* source = code_.offset(from, row, bytes_);
        Value* target = code_.offset(carried[0], code_.b.CreateMul(row, of.depth), bytes_);
        copy_steps(of, count, source, a_step, target,
                   of.sums == nullptr ? nullptr : code_.offset(of.sums, row, bytes_));
      });
      return {code_.offset(carried[0], count * height * bytes_)};
    })[0];
  };
  if (d + 1 < segment.k.size()) return run(code_.i64(0), extent, 1, to);
  Value* main = code_.b.CreateSub(extent, code_.b.CreateURem(extent, code_.i64(some)));
  return run(main, extent, 1, run(code_.i64(0), main, some, to));
}

Values DotEmitter::large_block(const Segment& segment, const Tile& tile, std::int64_t rows, Value* depth,
                               const LargeBlock& block, Values accumulators) {
  const std::int64_t a_step = (packs_rows(segment) ? rows : 1) * bytes_;
  Segment packed = segment;
  packed.packed = true;
  Tile beside = tile;
  if (!segment.packed) beside.panel_vectors = tile.vectors;
  std::optional<NextLines> next;
  if (block.next_b != nullptr) {
    Value* lines = code_.b.CreateMul(depth, code_.i64(tile.vectors));
    next = NextLines{block.next_b, code_.b.CreateMul(block.row, lines), unroll * rows * tile.vectors, tile.vectors,
                     block.group};
  }
  // A line of C each time; those past the block are the last one again.
  const auto fetch_c = [&](Value* turn) {
    Value* last = code_.i64(rows * tile.vectors - 1);
    Value* line = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, turn, last);
    Value *row = code_.b.CreateUDiv(line, code_.i64(tile.vectors)),
          *vector = code_.b.CreateURem(line, code_.i64(tile.vectors));
    Value* of_row = code_.offset(block.next_c, row, dot_.c_m * bytes_);
    prefetch(end_of(code_.offset(of_row, vector, lanes_ * dot_.c_n * bytes_), dot_.c_n), Cache::First);
  };
  const auto run = [&](Value* begin, Value* end, std::int64_t count) {
    accumulators = code_.loop(begin, end, count, accumulators, [&](Value* k, Values sums) {
      Value *a = code_.offset(block.a, k, a_step), *b = code_.offset(block.b, k, block.b_step);
      for (std::int64_t u = 0; u < count; ++u) {
        Value* b_k = code_.offset(b, u * block.b_step);
        if (block.unpacked_b != nullptr) {
          Value* from = code_.offset(block.unpacked_b, k, block.unpacked_b_step);
          pack_step(segment, tile, code_.offset(from, u * block.unpacked_b_step), b_k);
        }
        step(packed, beside, rows, code_.offset(a, u * a_step), b_k, sums);
      }
      if (count < unroll) return sums;
      Value* turn = code_.b.CreateUDiv(k, code_.i64(unroll));
      if (next) fetch(*next, turn, block.next_b_step);
      fetch_c(turn);
      if (block.next_rows != nullptr) pack_pieces(*block.next_rows);
      return sums;
    });
  };
  Value* main = code_.b.CreateSub(depth, code_.b.CreateURem(depth, code_.i64(unroll)));
  run(code_.i64(0), main, unroll);
  run(main, depth, 1);
  return accumulators;
}

}  // namespace hotloop::codegen
