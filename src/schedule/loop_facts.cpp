#include "schedule/loop_facts.h"

#include <algorithm>

#include "schedule/accesses.h"
#include "schedule/footprint.h"

namespace hotloop::kernel {

LoopFacts facts_of(const For& loop) {
  LoopFacts facts;
  facts.variables.insert(loop.counter);
  const auto note = [&](const auto& self, const Block& block) -> void {
    for (const Stmt& stmt : block) {
      for_each_variable(stmt, [&](const SetVariable& v) { facts.variables.insert(v.var); });
      for_each_part(
          stmt,
          [&](const Use& use) {
            if (use.writes) facts.written.insert(use.access->buffer);
          },
          [&](const Block& inside) { self(self, inside); });
    }
  };
  note(note, loop.test);
  note(note, loop.body);
  return facts;
}

bool is_fixed(const Program& program, const LoopFacts& loop, const Access& access) {
  if (!access.indirect.empty()) return false;
  if (std::ranges::any_of(access.index.terms, [&](const Term& t) { return loop.variables.contains(t.var); }))
    return false;
  const auto buffer = [&](int b) -> const Buffer& { return program.buffers[static_cast<std::size_t>(b)]; };
  return std::ranges::none_of(
      loop.written, [&](int b) { return b == access.buffer || lie_together(buffer(b), buffer(access.buffer)); });
}

}  // namespace hotloop::kernel
