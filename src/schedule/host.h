// What this machine can run.
#pragma once

#include <string>

namespace hotloop::kernel {

// Whether this machine has the instructions of the target of that name.
bool host_runs(const std::string& target);

}  // namespace hotloop::kernel
