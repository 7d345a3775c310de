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

// `on_cpu`: the program for the processor. It stays there unless an estimate says that the device takes less than half as long.
DeviceChoice choose_device(const Graph& graph, const CompileOptions& options, const Lowered& on_cpu);

}  // namespace hotloop::runtime
