#pragma once

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// What a loop writes and statements after it sum over its steps, as gradients of weights sum over gradients of gates, is summed while it is in the second
// cache: the steps are cut into chunks, and after each chunk its sums are added to those before.
//
//   for t < 120 reverse:                  for chunk < 8 reverse:
//     g[t] = ...                            for t < 15 reverse:
//   w += sum over t of x[t] g[t]              g[15 chunk + t] = ...
//   b += sum over t of g[t]                 w += sum over t < 15 of x[15 chunk + t] g[15 chunk + t]
//                                           b += sum over t < 15 of g[15 chunk + t]
//
// A chunk's length depends on the program alone, as that of a tile's parts does, since the order of the sums depends on it. Inside of grids on processors. Before the
// memory plan.
void sum_by_chunks(Program& program);

}  // namespace hotloop::kernel
