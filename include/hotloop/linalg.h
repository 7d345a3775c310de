// Dense linear systems inside the kernel, from 45 rows by blocks (Golub and Van Loan, Matrix Computations, 4th ed., 3.4 and 4.2). Of single
// matrices of f32 or f64: vmap() makes a batch, which is solved a vector of systems at a time. A matrix that has no solution gives
// inf or nan. UserError for what is not square, of integers, or does not fit.
#pragma once

#include <utility>

#include "hotloop/graph.h"

namespace hotloop::linalg {

// P a = L U by elimination with row pivoting.
struct LU {
  Value lu;           // (n, n): L, whose diagonal is one, below the diagonal, and U
  Value rows;         // (n,) i32: the row of a that each came from
  Value parity = {};  // 1, or -1 where P exchanges an odd number of rows
};
LU lu_factor(Value a);
// x with a x = b, of b (n,) or (n, k). Derivatives go through the substitution.
Value lu_solve(const LU& factors, Value b);

// x with a x = b, of b (n,) or (n, k). The derivative is the system's own, dx = a^-1 (db - da x).
Value solve(Value a, Value b);
// x with a x = b for a triangular a, whose other triangle is not read.
Value solve_triangular(Value a, Value b, bool upper);
// The determinant. Its derivative is the matrix of cofactors, of a singular matrix too; second ones want at least n - 1 independent columns, and beyond
// 44 rows an inverse.
Value det(Value a);
// The determinant's sign and the logarithm of its size, which itself may overflow.
std::pair<Value, Value> slogdet(Value a);
// L with L L^T = a, lower triangular, of a symmetric positive definite a, whose upper triangle is not read.
Value cholesky(Value a);
// x with L L^T x = b, of b (n,) or (n, k).
Value cholesky_solve(Value l, Value b);
// The numbers on the diagonal, (n,).
Value diagonal(Value a);

}  // namespace hotloop::linalg
