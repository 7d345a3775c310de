// Transcendental scalar operations as sequences of basic ones, so that every backend gives the same bits.
#pragma once

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// Replaces Exp, Expm1, Log, Log1p, Tanh and Sigmoid of f32 and f64 in every Map by basic instructions (src/schedule/math).
// What remains (Sin, Cos, Erf, Pow, Rem) is each backend's library call. schedule() ends with it; doing it twice changes nothing.
void lower_math(Program& program);

}  // namespace hotloop::kernel
