// Sums of a Dot's factor beside its products: DotEmitter::emit_with_sums().
#include <algorithm>
#include <cstdint>
#include <vector>

#include "backends/llvm/dot_emitter.h"

namespace hotloop::codegen {

using kernel::TileRun;
using Values = Code::Values;

bool DotEmitter::may_sum(Summed which) const {
  DotEmitter summing = *this;
  summing.summed_ = which;
  return summing.has_room_for_sums();
}

bool DotEmitter::has_room_for_sums() const {
  if (!dot_.m.is_static() || !dot_.n.is_static() || dot_.m.bound == 0 || dot_.pairs || segments_.size() != 1)
    return false;
  const Segment& segment = segments_[0];
  if (segment.packed || segment.b_n != 1 || lanes_ == 1) return false;
  if (summed_ == Summed::Rows && segment.a_m != 1) return false;
  std::vector<std::int64_t> widths;
  for (const TileRun& run : walk_.runs) widths.push_back(run.width);
  if (const std::int64_t columns = dot_.n.bound - walk_.rest * lanes_; columns > 0)
    widths.push_back((columns + lanes_ - 1) / lanes_);
  const auto tile_of = [&](std::int64_t width) {
    return Tile{0, nullptr, static_cast<int>(width), static_cast<int>(walk_.panel), lanes_, {}};
  };
  const Tile widest = tile_of(std::ranges::max(widths));
  if (is_large()) return summed_ == Summed::Rows;  // added up as they are packed
  if (reads_bands(widest)) return false;
  return std::ranges::all_of(widths, [&](std::int64_t width) {
    const Tile tile = tile_of(width);
    const std::vector<RowRange> ranges = row_ranges(tile);
    return leaves_room((summed_ == Summed::Rows ? ranges.front() : ranges.back()).height, tile);
  });
}

bool DotEmitter::leaves_room(std::int64_t rows, const Tile& tile) const {
  const auto registers = [&](std::int64_t lanes) {
    return (lanes * bytes_ + code_.state().register_bytes - 1) / code_.state().register_bytes;
  };
  // Of products, of a row of B, of a number of A; and of the sums, with what is added to those of rows.
  const std::int64_t row = tile.vectors * registers(lanes_),
                     sums =
                         summed_ == Summed::Rows ? registers(rows) + registers(lanes_for_few(dot_.dtype, rows)) : row;
  return (rows + 1) * row + 1 + sums <= code_.state().num_registers();
}

void DotEmitter::emit_with_sums(Summed which, Value* to) {
  summed_ = which;
  sums_ = to;
  emit();
}

std::vector<DotEmitter::Sums> DotEmitter::sums_of(const Tile& tile, Value* row, std::int64_t rows) {
  std::vector<Sums> all;
  if (summed_ == Summed::Columns) {
    Value* to = column_offset(sums_, tile, 1);
    for (int j = 0; j < tile.vectors; ++j) all.push_back({code_.offset(to, j * lanes_ * bytes_), lanes_, nullptr});
    return all;
  }
  Value* to = code_.offset(sums_, row, bytes_);
  for (std::int64_t first = 0; first < rows; first += all.back().lanes)
    all.push_back(
        {code_.offset(to, first * bytes_), lanes_for_few(dot_.dtype, rows - first), mask_of_rows(rows - first)});
  return all;
}

Value* DotEmitter::mask_of_rows(std::int64_t rows) {
  const int lanes = lanes_for_few(dot_.dtype, rows);
  return rows >= lanes ? nullptr : code_.tail_mask(lanes, code_.i64(rows));
}

void DotEmitter::append_sums(Values& values, const Tile& tile, Value* row, std::int64_t rows, bool from_memory) {
  if (!sums_here_) return;
  for (const Sums& sums : sums_of(tile, row, rows))
    values.push_back(from_memory ? code_.load(dot_.dtype, sums.at, 1, sums.lanes, sums.mask)
                                 : code_.zero(dot_.dtype, sums.lanes));
}

void DotEmitter::take_sums(Values& values, const Tile& tile, Value* row, std::int64_t rows) {
  if (!sums_here_) return;
  const std::vector<Sums> all = sums_of(tile, row, rows);
  for (std::size_t j = all.size(); j-- > 0; values.pop_back())
    code_.store(dot_.dtype, values.back(), all[j].at, 1, all[j].lanes, all[j].mask);
}

void DotEmitter::add_rows(Values& accumulators, const Tile& tile, std::int64_t rows, Value* a) {
  if (!sums_here_ || summed_ != Summed::Rows) return;
  std::int64_t number = 0;
  for (std::int64_t first = 0; first < rows; ++number) {
    const int lanes = lanes_for_few(dot_.dtype, rows - first);
    Value* value = code_.load(dot_.dtype, code_.offset(a, first * bytes_), 1, lanes, mask_of_rows(rows - first));
    add_to_sums(accumulators, tile, rows, number, value);
    first += lanes;
  }
}

void DotEmitter::clear_sums(const Tile& tile) {
  const int lanes = kernel::lanes_of(dot_.dtype);
  const bool of_rows = summed_ == Summed::Rows;
  Value* to = of_rows ? sums_ : column_offset(sums_, tile, 1);
  const std::int64_t count = of_rows ? dot_.m.bound : std::min<std::int64_t>(tile.vectors * lanes_, dot_.n.bound);
  code_.loop(code_.i64(0), code_.i64((count + lanes - 1) / lanes * lanes), lanes, [&](Value* at) {
    code_.store(dot_.dtype, code_.zero(dot_.dtype, lanes), code_.offset(to, at, bytes_), 1, lanes, nullptr);
  });
}

void DotEmitter::add_to_sums(Values& accumulators, const Tile& tile, std::int64_t rows, std::int64_t number,
                             Value* value) {
  Value*& sum = accumulators[static_cast<std::size_t>(rows * tile.vectors + number)];
  sum = code_.op(ir::ScalarOp::Add, dot_.dtype, dot_.dtype, {sum, value});
}

}  // namespace hotloop::codegen
