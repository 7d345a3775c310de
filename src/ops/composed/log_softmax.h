// Logarithms of a softmax's shares.
#pragma once

#include "hotloop/graph.h"

namespace hotloop {

// log(softmax(x, axis)) with all digits, also of a share that is almost 1. NaN where all are -inf, as softmax is.
Value log_softmax(Value x, int axis);

}  // namespace hotloop
