// Workers of several blocks side by side (clusters): whether there may be some.
#pragma once

#include "backends/cuda/device.h"
#include "schedule/kernel_ir.h"

namespace hotloop::cuda {

inline constexpr int most_side_by_side = 16;

// HOTLOOP_CUDA_BLOCKS in the environment: "auto", as many as choose_blocks() says, or a number, always so many. Without it every worker is one block: this
// has been compiled for devices and run on the emulated one, but no device has run it yet.
struct SideBySide {
  int most = 1;  // blocks of a worker, a power of two
  bool always = false;
};
// UserError for any other text.
SideBySide side_by_side();

// Of how many blocks a worker should be, at most `most`: blocks divide its products' columns and keep factors that are too many for one, but wait longer for
// one another.
int choose_blocks(const kernel::Program& program, std::int64_t rows, const DeviceInfo& device, int most);

}  // namespace hotloop::cuda
