// How a bound factor of a dot lies, in the order in which the target's dots read it.
#pragma once

#include <cstdint>

#include "core/index.h"
#include "hotloop/graph.h"

namespace hotloop::ir {

// Of a matrix [k, n] over whose rows a dot sums. It lies in one row of numbers: panel after panel, the rows of a panel one after the other.
struct FactorLayout {
  // Columns of a panel; the last one has what is left. 0: the matrix is not laid out, but is what it is.
  std::int64_t panel = 0;
  // Of an f32 matrix rounded to bfloat16: so many rows of u32 lie there, of which row i holds the rows i (upper half) and i + half (lower half), 0 beyond their
  // end. 0: numbers are what they are.
  std::int64_t half = 0;
  // Columns are filled up with zeros to a multiple of this.
  std::int64_t lanes = 1;
  auto operator<=>(const FactorLayout&) const = default;

  explicit operator bool() const { return panel > 0; }
  std::int64_t rows(const Shape& matrix) const { return half > 0 ? half : matrix[0]; }
  std::int64_t columns(const Shape& matrix) const { return divided_up(matrix[1], lanes) * lanes; }
  // What lies there.
  ValueType type(const ValueType& matrix) const {
    return {half > 0 ? DType::U32 : matrix.dtype, {rows(matrix.shape) * columns(matrix.shape)}};
  }
};

// The matrix in this layout.
Value lay_out(Value matrix, const FactorLayout& layout);

}  // namespace hotloop::ir
