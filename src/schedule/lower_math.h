// Transcendental scalar operations as sequences of basic ones, so that every backend gives the same bits.
#pragma once

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// Replaces Exp, Expm1, Log, Log1p, Sin, Cos, Tanh, Sigmoid, Erf and its relatives, Pow and Rem of f32 and f64 in every Map by basic instructions
// (src/schedule/math); backends have no code for them. After the last step that makes Maps of such; doing it twice changes nothing.
void lower_math(Program& program);

}  // namespace hotloop::kernel
