// What derivatives of the error function and of the normal distribution are made of.
#pragma once

#include "hotloop/graph.h"

namespace hotloop::ir {

// exp(-scale x x) of a power of two: the square of x's first digits is exact, and the rest is small.
Value exp_of_minus_square(Value x, double scale = 1);
// exp(x x) erfc(x) of x >= 0, in f64.
Value scaled_complement(Value x);

}  // namespace hotloop::ir
