// Prints statements for workers that are blocks of threads, one each or several side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/render/dialect.h"
#include "backends/render/dot_shape.h"
#include "schedule/kernel_ir.h"

namespace hotloop::render {

struct BlockText {
  std::string text;
  std::int64_t near_bytes = 0;  // that a block takes: the program's, and room for factors
  std::size_t num_ticks = 0;    // statements whose cycles are counted
};
BlockText write_for_blocks(const kernel::Program& program, const Dialect& dialect, const WorkerShape& worker,
                           bool profile);

}  // namespace hotloop::render
