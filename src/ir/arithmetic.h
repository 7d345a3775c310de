// How much arithmetic a program does, as it is counted when speeds are told.
#pragma once

#include "hotloop/graph.h"

namespace hotloop::ir {

// A multiplication and addition of a dot are two; an element of any other operation that computes, a function such as tanh included,
// is one; moving data is none. Other than estimate_flops(), which weighs operations by their cost to compare programs, this never
// counts more than was done, so that a speed never exceeds the machine's.
struct Arithmetic {
  double flops = 0;
  bool is_bound = false;  // a loop may end early, or runs as often as an argument says: `flops` is the most
};
Arithmetic count_arithmetic(const Graph& graph);

}  // namespace hotloop::ir
