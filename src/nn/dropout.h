// Random masks of dropout.
#pragma once

#include "hotloop/nn.h"

namespace hotloop::nn {

// For each element 0 with probability `rate`, else 1 / (1 - rate) (Srivastava et al. 2014, scaled in training), a pure function of
// the context's key. UserError without a key.
Value dropout_factor(const Context& context, const ValueType& type, double rate);
// Throws UserError unless the rate is in [0, 1).
void check_dropout_rate(const std::string& where, double rate);

}  // namespace hotloop::nn
