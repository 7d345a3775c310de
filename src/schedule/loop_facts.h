// What a loop changes: whether an access inside it finds the same numbers in every iteration.
#pragma once

#include <set>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// Of the loop and all that is in it.
struct LoopFacts {
  std::set<Var> variables;  // that it sets
  std::set<int> written;    // buffers
};
LoopFacts facts_of(const For& loop);

// Whether the access is to the same elements in every iteration, and nothing is written there.
bool is_fixed(const Program& program, const LoopFacts& loop, const Access& access);

}  // namespace hotloop::kernel
