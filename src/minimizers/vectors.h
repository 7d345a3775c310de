// Products and sizes of vectors of parameters.
#pragma once

#include "hotloop/graph.h"

namespace hotloop::minimizers {

// a . b, an f64 scalar: searches compare what differs little.
Value inner(Value a, Value b);
// The largest |x[i]|; NaN if any is.
Value largest(Value x);

}  // namespace hotloop::minimizers
