// Prints statements for workers that are blocks of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/render/dialect.h"
#include "schedule/kernel_ir.h"

namespace hotloop::render {

// Of a Dot: each thread computes `rows` x `columns` sums, one accumulator each. Chosen by shape alone; it changes no order of summation.
struct RegisterTile {
  int rows = 1, columns = 1;
};
RegisterTile choose_register_tile(std::int64_t m, std::int64_t n, DType dtype, int threads);

struct BlockText {
  std::string text;
  std::int64_t near_bytes = 0;  // that a block takes: the program's, and room for factors
  std::size_t num_ticks = 0;    // statements whose cycles are counted
};
BlockText write_for_blocks(const kernel::Program& program, const Dialect& dialect, int threads, bool profile);

}  // namespace hotloop::render
