// LU, Cholesky and substitution one column after the other (Golub and Van Loan, Matrix Computations, 4th ed., 3.4 and 4.2.5), as loops,
// for matrices that are too small for blocks.
#pragma once

#include "ops/composed/linalg_parts.h"

namespace hotloop::linalg::columns {

// P a = L U of rows that keep their places: none is moved, which in a batch would be to places of each matrix's own.
struct Factors {
  Value lower;  // (n, n): of each pivot row how much all rows of a had, zero for those that were pivots before
  Value upper;  // (n, n): U, below whose diagonal is what rounding left
  Value rows;   // (n,) i32: the row of a that each pivot row is
};
Factors factorize(Value a);
// x with a x = b, or a^T x = b, of a's factors. b: (n, k).
Value substitute(const Factors& factors, Value b, bool transposed);

// x with u x = b, or u^T x = b. u: zero below the diagonal; b: (n, k).
Value substitute_upper(Value u, Value b, bool transposed);

// The same factors as the public LU has them.
LU packed_factors(Value a);
// x with a x = b, of b (n,) or (n, k).
Value substitute(const LU& factors, Value b);

// l with l l^T = a, whose upper triangle is not read.
Value cholesky(Value a);

}  // namespace hotloop::linalg::columns
