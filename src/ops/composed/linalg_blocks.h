// LU, Cholesky and triangular systems by blocks of columns (Golub and Van Loan, Matrix Computations, 4th ed., 3.2.11 and 4.2.9): what is
// left of a block is products of matrices, so that a large matrix is done at their speed and not at that of memory. Loops over
// blocks, so that a program's length does not grow with the matrix. Derivatives are not their affair.
#pragma once

#include "ops/composed/linalg_parts.h"

namespace hotloop::linalg::blocks {

// Rows from which blocks are faster than one column after the other.
inline constexpr std::int64_t fewest_rows = 45;
inline bool serve(const Value& a) { return a.shape()[0] >= fewest_rows; }

// P a = L U. a: whole blocks, as padded() makes them.
struct Factors {
  Value lower;  // L's transpose
  Value upper;  // U
  Value rows;   // the row of a that each came from
};
Factors factorize(Value a);
// x with a x = b, or a^T x = b, of a's factors. b: (n, k).
Value substitute(const Factors& factors, Value b, bool transposed);
// The same factors of a matrix of any size, as the public LU has them.
LU packed_factors(Value a);
Value substitute(const LU& factors, Value b, bool transposed);
// x with u x = b, or u^T x = b. u: zero below the diagonal, of any size; b: (n, k).
Value substitute_upper(Value u, Value b, bool transposed);
// u with u^T u = a, upper triangular. a: symmetric, of whole blocks.
Value cholesky(Value a);

// a with ones on the diagonal of rows and columns that fill a block; b with rows of zeros, and where it has many columns, with columns
// of them that fill vectors.
Value padded(Value a);
Value padded_right_side(Value b);
// The rows and columns of x that a value of such a shape has.
Value beginning(Value x, Value of);

}  // namespace hotloop::linalg::blocks
