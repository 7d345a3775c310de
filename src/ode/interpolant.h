// A step's interpolant, as StepResult has it.
#pragma once

#include "hotloop/ode.h"

namespace hotloop::ode {

// y0 + sum_j terms[j] x^(j+1), leaf by leaf.
Leaves interpolate(const Leaves& y0, const std::vector<Leaves>& terms, Value x);

}  // namespace hotloop::ode
