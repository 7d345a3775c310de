// Linear systems that are eliminated once and solved for several right sides, as an implicit step has them.
#pragma once

#include "hotloop/linalg.h"

namespace hotloop::ode {

using Factors = linalg::LU;
// Of a's value: nothing is differentiated through the elimination.
Factors factorize(Value a);

// x with A x = b, given A's factors. Its derivative is that of the system, dx = A^-1 (db - dA x), whatever the factors
// were made of.
Value solve_with(Value a, const Factors& factors, Value b);

}  // namespace hotloop::ode
