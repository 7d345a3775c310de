// What this machine can run.
#pragma once

#include <string>

namespace hotloop::kernel {

// Whether this machine has the instructions of the target of that name.
bool host_runs(const std::string& target);
// Whether it multiplies pairs of bfloat16 in one instruction (AVX512-BF16).
bool host_multiplies_pairs();

}  // namespace hotloop::kernel
