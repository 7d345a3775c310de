// Dense linear systems of a few unknowns, inside the kernel: LU with row pivoting as loops over columns.
#pragma once

#include "hotloop/graph.h"

namespace hotloop::ode {

// P A = L U: both triangles in one matrix, and the row that each came from.
struct Factors {
  Value lu;    // (n, n)
  Value rows;  // (n,) i32
};
Factors factorize(Value a);

// x with A x = b, given A's factors. Its derivative is that of the system, dx = A^-1 (db - dA x), up to the third order: the
// factors are not differentiated through.
Value solve_with(Value a, const Factors& factors, Value b);

}  // namespace hotloop::ode
