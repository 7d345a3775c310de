// Runs kernel IR on a CUDA device: inputs go there and outputs come back with each call, the program is one launch.
#pragma once

#include <memory>
#include <vector>

#include "backends/cuda/device.h"
#include "runtime/engine.h"

namespace hotloop::runtime {

// Whether the first axis of each input and output is the batch, so that a call may bring fewer.
struct RowsOf {
  std::vector<bool> inputs, outputs;
};

std::unique_ptr<Engine> make_cuda_engine(kernel::Program program, cuda::Device& device, const BackendOptions& options,
                                         RowsOf rows, bool fixed_rows);

}  // namespace hotloop::runtime
