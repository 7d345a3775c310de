// What the programs for matrices share: rows, columns, masks, and the factors that lu_factor() gives.
#pragma once

#include "hotloop/linalg.h"

namespace hotloop::linalg {

Value i32(std::int64_t n);
Value numbered(std::int64_t n);  // 0, 1, ...
Value as_column(Value x);        // (n, 1)
Value as_row(Value x);           // (1, n)
// The k-th row of a matrix or number of a vector, the k-th column, for a k that the program computes.
Value row(Value x, Value k);
Value column(Value a, Value k);
// x with `part` as its k-th row.
Value with_row(Value x, Value part, Value k);
// a^T.
Value turned(Value a);
// a, and zeros below the diagonal.
Value upper_triangle(Value a);
// (n, n), true on the diagonal.
Value on_diagonal(std::int64_t n);
// select() whose operands broadcast.
Value where(Value condition, Value a, Value b);
// Of a column of what is left of a matrix, (n,): the row with the largest number among those that are no pivots yet (`used` false), and how much of the pivot row
// is to be taken from each row, zero for those that are pivots, its own among them.
Value best_row(Value column, Value used);
Value elimination_factors(Value column, Value pivot, Value used);
// 1 or -1: of how many pairs of rows that changed their order.
Value parity_of(Value rows, DType dtype);
// As lu_factor() gives them. lower: L's transpose, with anything on and below its diagonal; upper: U, with anything below its.
LU packed(Value lower, Value upper, Value rows);

}  // namespace hotloop::linalg
