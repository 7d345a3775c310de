#pragma once

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// Maps that ask where a point is, as one does that reads a padded value or, piece by piece, a concatenation (the neighbours of a stencil), are cut at the
// edges: each part knows the answer, so that inside nothing is asked and no load has a mask.
//
//   map (i < 64, j < 64): select(i >= 1, x[i - 1, j] if i >= 1, y[j])   ->   map (j < 64):         y[j]
//                                                                            map (i < 63, j < 64): x[i, j]
//
// Along the dim that fills vectors an edge moves to where a vector ends, and the part with the edge in it goes on asking. What each point computes is the
// same; Maps that reduce keep their order, and stay whole. At the end of a schedule, on processors.
void cut_at_edges(Program& program);

}  // namespace hotloop::kernel
