// A Device that is reached through the driver.
#pragma once

#include <memory>

#include "backends/cuda/compiler.h"
#include "backends/cuda/context.h"
#include "backends/cuda/device.h"

namespace hotloop::cuda {

// Code must outlive its launches, and nothing of it may be in use when it is destroyed. Destroying a stream waits for
// what it does. Objects may be destroyed in a forked process: that leaves the device as it is.
std::unique_ptr<Device> make_device(const Context& context, const Compiler& compiler, const DeviceInfo& info);

}  // namespace hotloop::cuda
