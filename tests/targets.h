// The targets of this machine's architecture, and those of them that it runs.
#pragma once

#include <string>
#include <vector>

#include "schedule/host.h"
#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// The best first.
#if defined(__aarch64__)
inline constexpr const char* native_targets[] = {"neon", "portable"};
#else
inline constexpr const char* native_targets[] = {"avx512", "avx2", "portable"};
#endif

// From the weakest to the host's, which HOTLOOP_TARGET may say.
inline std::vector<std::string> runnable_targets() {
  const std::string best = host_target().name;
  std::vector<std::string> targets;
  for (const std::string target : native_targets)
    if (target == best || (!targets.empty() && host_runs(target))) targets.insert(targets.begin(), target);
  return targets;
}

}  // namespace hotloop::kernel
