// The registers of a Map's instructions, which are their positions, where instructions move.
#pragma once

#include <vector>

#include "core/index.h"
#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// `now`: by register, where it is after the move.
inline void renumber(Instr& instr, const std::vector<int>& now) {
  for (int& arg : instr.args)
    if (arg >= 0) arg = now[at(arg)];
  for (Indirect& term : instr.access.indirect) term.reg = now[at(term.reg)];
}

}  // namespace hotloop::kernel
