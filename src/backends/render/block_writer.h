// Prints statements for workers that are blocks of threads.
#pragma once

#include <string>

#include "backends/render/dialect.h"
#include "schedule/kernel_ir.h"

namespace hotloop::render {

// Of a Dot: each thread computes `rows` x `columns` sums, one accumulator each. Chosen by shape alone; it changes no order of summation.
struct RegisterTile {
  int rows = 1, columns = 1;
};
RegisterTile choose_register_tile(std::int64_t m, std::int64_t n, DType dtype, int threads);

std::string write_for_blocks(const kernel::Program& program, const Dialect& dialect, int threads);

}  // namespace hotloop::render
