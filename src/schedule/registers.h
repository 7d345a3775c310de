// The registers of a Map's instructions, which are their positions, where instructions move or go.
#pragma once

#include <cstddef>
#include <utility>
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

// Leaves of a Map the stores for which keeps(place) holds, and what they need.
template <class Keeps> void keep_stores(Map& map, const Keeps& keeps) {
  std::vector<bool> needed(map.instrs.size(), false);
  for (std::size_t i = map.instrs.size(); i-- > 0;) {
    const Instr& in = map.instrs[i];
    if (in.kind == Instr::Kind::Store) needed[i] = keeps(static_cast<int>(i));
    if (!needed[i]) continue;
    for (const int arg : in.args)
      if (arg >= 0) needed[at(arg)] = true;
    for (const Indirect& term : in.access.indirect) needed[at(term.reg)] = true;
  }
  std::vector<int> now(map.instrs.size(), -1);
  std::vector<Instr> kept;
  int body_end = 0;
  for (std::size_t i = 0; i < map.instrs.size(); ++i) {
    if (!needed[i]) continue;
    renumber(map.instrs[i], now);
    now[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(map.instrs[i]));
    if (static_cast<int>(i) < map.body_end) ++body_end;
  }
  map.instrs = std::move(kept);
  map.body_end = body_end;
}

}  // namespace hotloop::kernel
