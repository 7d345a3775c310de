// Where a long block is cut, so that generated code is functions of moderate length: compilers take more than linear time for one function.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// Statements begin to end of a block. Those of their own function set no variable that later statements read.
struct Part {
  std::size_t begin, end;
  bool own_function;
};

// All statements of the block, in order. One part without a function where it is short.
std::vector<Part> parts_of(const Block& block);

}  // namespace hotloop::kernel
