// Transcendental scalar operations as sequences of basic ones, so that every backend gives the same bits.
#pragma once

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// Replaces Exp, Expm1, Log, Log1p, Sin, Cos, Tanh, Sigmoid and Erf of f32 and f64, and Pow of f32, in every Map by basic instructions
// (src/schedule/math). What remains (Pow of f64, Rem) is each backend's library call. schedule() ends with it; doing it twice changes nothing.
void lower_math(Program& program);

}  // namespace hotloop::kernel
