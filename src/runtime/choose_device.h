// device = "auto": where a program is to run.
#pragma once

#include <optional>
#include <string>

#include "runtime/lowering.h"

namespace hotloop::runtime {

struct DeviceChoice {
  std::optional<Lowered> on_device;  // the program for a CUDA device, where that is the choice
  std::string why;                   // both estimates, for explain(); empty where there is nothing to choose from
};

// `cpu_ns`: estimated, of a call on the processor. Whether there is a device to choose at all.
bool has_choice_of_device(double cpu_ns);

// The program stays on the processor unless an estimate says that the device takes less than half as long.
DeviceChoice choose_device(const Graph& graph, const CompileOptions& options, double cpu_ns);

}  // namespace hotloop::runtime
