// Which tiles may stream through slots, and what the rewriting needs to know of their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

struct StreamPlan {
  std::size_t loop_at = 0;  // the loop's position in the tile's body
  // Buffers that the loop writes; what they hold of a row lives until the row has finished.
  std::set<int> state;
  // Of those, the numbers of results that are read and written row by row: (buffer, index of row 0) -> elements between rows.
  std::map<std::pair<int, std::int64_t>, std::int64_t> columns;
};

// Nothing where a row could see what other rows did: in which iteration or slot it is, or what they left in memory.
std::optional<StreamPlan> plan_stream(const Program& program, const Grid& grid);

// What outlives a tile.
inline bool is_external(const Program& program, int buffer) {
  return program.buffers[static_cast<std::size_t>(buffer)].space != Space::Worker;
}

// The dim whose points are the rows of the tile, or -1.
int rows_dim(const Map& map, Var rows);

}  // namespace hotloop::kernel
