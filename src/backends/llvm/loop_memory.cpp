#include "backends/llvm/loop_memory.h"

#include <variant>

namespace hotloop::codegen {

using kernel::Affine;
using kernel::Instr;

LoopMemory::LoopMemory(const kernel::Program& program, const kernel::For& loop) : program_(program) {
  scan(loop.test);
  if (loop.stop) reads(loop.stop->buffer);
  scan(loop.body);
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
    if (const auto* map = std::get_if<kernel::Map>(&statement.node)) {
      scan(*map);
    } else if (const auto* dot = std::get_if<kernel::Dot>(&statement.node)) {
      if (dot->init) reads(dot->init->buffer);
      for (const kernel::DotSegment& segment : dot->segments) {
        reads(segment.a.buffer);
        reads(segment.b.buffer);
      }
      writes(dot->c.buffer, false);
    } else if (const auto* pack = std::get_if<kernel::Pack>(&statement.node)) {
      reads(pack->source.buffer);
      writes(pack->target, false);
    } else if (const auto* let = std::get_if<kernel::Let>(&statement.node)) {
      reads(let->source.buffer);
    } else if (const auto* loop = std::get_if<kernel::For>(&statement.node)) {
      scan(loop->test);
      if (loop->stop) reads(loop->stop->buffer);
      scan(loop->body);
    } else {
      is_straight_ = false;
    }
  }
}

void LoopMemory::scan(const kernel::Map& map) {
  // A point may read what it has written; all points together read first, unless they come one after the other.
  for (const Instr& instr : map.instrs) {
    if (instr.kind == Instr::Kind::Load) reads(instr.access.buffer);
  }
  for (const Instr& instr : map.instrs) {
    if (instr.kind == Instr::Kind::Store) writes(instr.access.buffer, is_whole(map, instr));
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
