#include "backends/llvm/loop_memory.h"

#include <variant>

#include "schedule/accesses.h"

namespace hotloop::codegen {

using kernel::Affine;
using kernel::Instr;

LoopMemory::LoopMemory(const kernel::Program& program, const kernel::For& loop) : program_(program) {
  kernel::for_each_part(
      loop, [&](const kernel::Use& use) { reads(use.access->buffer); },
      [&](const kernel::Block& inside) { scan(inside); });
}

std::vector<int> LoopMemory::carried() const {
  constexpr std::size_t most = 16;  // beside what the statements themselves need
  std::vector<int> found;
  for (const auto& [index, use] : uses_) {
    const kernel::Buffer& buffer = program_.buffers[static_cast<std::size_t>(index)];
    const bool in_arena = buffer.space == kernel::Space::Shared || buffer.space == kernel::Space::Worker;
    if (!in_arena || !use.is_read_first || !use.is_whole || !written_.contains(index)) continue;
    if (buffer.elements > kernel::lanes_of(buffer.dtype)) continue;
    if (buffer.dtype == DType::Bool && buffer.elements > 1) continue;
    if (found.size() < most) found.push_back(index);
  }
  return found;
}

void LoopMemory::scan(const kernel::Block& block) {
  for (const kernel::Stmt& statement : block) {
    const auto* map = std::get_if<kernel::Map>(&statement.node);
    const auto is = [&]<class... T>() { return (std::holds_alternative<T>(statement.node) || ...); };
    if (is.operator()<kernel::Grid, kernel::Single, kernel::Sections, kernel::Barrier>()) is_straight_ = false;
    kernel::for_each_part(
        statement,
        [&](const kernel::Use& use) {
          const int buffer = use.access->buffer;
          if (!use.writes) return reads(buffer);
          writes(buffer, map != nullptr && is_whole(*map, map->instrs[static_cast<std::size_t>(use.instr)]));
        },
        [&](const kernel::Block& inside) { scan(inside); });
  }
}

void LoopMemory::reads(int buffer) {
  if (!uses_.contains(buffer)) uses_[buffer].is_read_first = true;
}

void LoopMemory::writes(int buffer, bool whole) {
  written_.insert(buffer);
  uses_[buffer].is_whole &= whole;
}

bool LoopMemory::is_whole(const kernel::Map& map, const Instr& store) const {
  if (store.args[1] >= 0 || !store.access.indirect.empty()) return false;
  const std::int64_t elements = program_.buffers[static_cast<std::size_t>(store.access.buffer)].elements;
  if (elements == 1) return map.num_outer == 0 && store.access.index == Affine(0);
  for (int d = 0; d < map.num_outer; ++d) {
    const kernel::Dim& dim = map.dims[static_cast<std::size_t>(d)];
    if (dim.extent == kernel::Extent{elements} && store.access.index == Affine::of(dim.var)) return map.num_outer == 1;
  }
  return false;
}

}  // namespace hotloop::codegen
