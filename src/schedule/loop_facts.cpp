#include "schedule/loop_facts.h"

#include <algorithm>
#include <type_traits>
#include <variant>

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

const For* plain_loop(const Stmt& stmt) {
  const auto* loop = std::get_if<For>(&stmt.node);
  if (loop == nullptr || loop->stop || !loop->trip.is_static() || loop->trip.bound < 1) return nullptr;
  bool counts = false;
  for_each_statement(loop->body, [&](const auto& statement) {
    for_each_extent(statement, [&](const Extent& extent) { counts = counts || extent.var == loop->counter; });
  });
  return counts ? nullptr : loop;
}

For steps_of(const For& loop, const Affine& first, const Extent& steps) {
  For part = loop;
  part.trip = steps;
  replace_variable(part.body, loop.counter, Affine::of(loop.counter) + first, [](Extent&) {});
  return part;
}

Map steps_of(const Map& map, int dim, const Affine& first, const Extent& steps) {
  Map part = map;
  Dim& d = part.dims[static_cast<std::size_t>(dim)];
  d.extent = steps;
  for_each_index(part, [&](Affine& index) { index = index + first * index.coefficient(d.var); });
  return part;
}

std::vector<Grid*> plain_grids(Program& program) {
  std::vector<Grid*> grids;
  for_each_statement(program.body, [&](auto& statement) {
    if constexpr (std::is_same_v<std::decay_t<decltype(statement)>, Grid>)
      if (statement.slots == 0) grids.push_back(&statement);
  });
  return grids;
}

}  // namespace hotloop::kernel
