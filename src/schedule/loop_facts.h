// What a loop changes: whether an access inside it finds the same numbers in every iteration; and loops that can be cut along their steps.
#pragma once

#include <set>
#include <vector>

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

// The loop, if it has a number of steps that is known, nothing stops it, and nothing in it is as many as the counter says: it may run in parts. Else null.
const For* plain_loop(const Stmt& stmt);
// So many steps of it, from `first` on.
For steps_of(const For& loop, const Affine& first, const Extent& steps);
// The same of a dim of a Map.
Map steps_of(const Map& map, int dim, const Affine& first, const Extent& steps);

// The grids whose rows stay in their places (no slots), wherever they stand.
std::vector<Grid*> plain_grids(Program& program);

}  // namespace hotloop::kernel
