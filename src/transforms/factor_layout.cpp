#include "transforms/factor_layout.h"

#include <vector>

#include "hotloop/error.h"
#include "hotloop/ops.h"

namespace hotloop::ir {
namespace {

Value number(double bits) { return constant(bits, DType::U32); }

// As core/bf16.h rounds; the lower half is not yet cleared.
Value rounded_bits(Value x) {
  const Value bits = bitcast(x, DType::U32);
  const Value is_odd = bit_and(shift_right(bits, number(16)), number(1));
  return select(equal(x, x), add(bits, add(is_odd, number(0x7fff))), number(0x7fc00000));
}

Value in_pairs(Value matrix, std::int64_t half) {
  const std::int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  HOTLOOP_CHECK(matrix.dtype() == DType::F32 && rows <= 2 * half, "two halves hold all rows");
  const Value bits = pad(rounded_bits(matrix), number(0), {0, 0}, {2 * half - rows, 0});
  const Value upper = slice(bits, {0, 0}, {half, columns}), lower = slice(bits, {half, 0}, {2 * half, columns});
  return bit_or(bit_and(upper, number(0xffff0000u)), shift_right(lower, number(16)));
}

}  // namespace

Value lay_out(Value matrix, const FactorLayout& layout) {
  const std::int64_t rows = layout.rows(matrix.shape()), columns = layout.columns(matrix.shape());
  if (columns > matrix.shape()[1])
    matrix = pad(matrix, constant(0, matrix.dtype()), {0, 0}, {0, columns - matrix.shape()[1]});
  if (layout.half > 0) matrix = in_pairs(matrix, layout.half);
  const std::int64_t panels = columns / layout.panel, whole = panels * layout.panel;
  std::vector<Value> parts;
  if (panels > 0) {
    const Value first = reshape(slice(matrix, {0, 0}, {rows, whole}), {rows, panels, layout.panel});
    parts.push_back(reshape(transpose(first, {1, 0, 2}), {rows * whole}));
  }
  if (whole < columns) parts.push_back(reshape(slice(matrix, {0, whole}, {rows, columns}), {rows * (columns - whole)}));
  return concat(parts, 0);
}

}  // namespace hotloop::ir
