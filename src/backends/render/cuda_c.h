// Prints a Program in CUDA C++: a worker is a block of threads, or several side by side, which share the points of each statement.
#pragma once

#include <cstdint>
#include <string>

#include "backends/render/block_writer.h"
#include "schedule/kernel_ir.h"

namespace hotloop::render {

struct CudaOptions {
  // Its near room is shared memory that a block may have: what every device gives, unless one that gives more is known. What the program leaves of
  // it keeps factors of loops.
  WorkerShape worker = {.near_room = 60 << 10};
  // The kernel counts the cycles of each statement, all of which end with a meeting then, and its first worker prints them.
  bool profile = false;
};

// One function, `extern "C" __global__ void hotloop_kernel(hl_context)`, whose argument is cuda::KernelArguments. What is between `#ifndef HL_EMULATED`
// and `#endif` asks for a device; all else is C++ for any compiler.
BlockText render_cuda(const kernel::Program& program, const CudaOptions& options = {});

}  // namespace hotloop::render
