// What a program takes on a CUDA device, estimated from its statements: whether it is worth going there.
#pragma once

#include <cstdint>

#include "backends/cuda/device.h"
#include "schedule/kernel_ir.h"

namespace hotloop::cuda {

struct DeviceTime {
  double kernel_ns = 0, launch_ns = 0, copies_ns = 0;  // copies: of inputs that go there and outputs that come back
  double all() const { return kernel_ns + launch_ns + copies_ns; }
};

// One call with so many rows, of a program for kernel::cuda_target(). A run-time number of iterations counts as its bound, one that a condition may
// end as a few, as in kernel::estimate_time_ns.
DeviceTime estimate_time(const kernel::Program& program, std::int64_t rows, const DeviceInfo& device);

// The kernel of one such call, where workers have so many blocks.
double estimate_cycles(const kernel::Program& program, std::int64_t rows, const DeviceInfo& device, int blocks);

// What a call in progress takes of the device's memory: arguments, results and arenas.
double device_bytes(const kernel::Program& program);

}  // namespace hotloop::cuda
