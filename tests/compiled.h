// The compiled ways to run a graph: every backend and target that this machine has.
#pragma once

#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "hotloop/jit.h"
#include "schedule/kernel_ir.h"
#include "targets.h"

namespace hotloop::testing {

struct Compiled {
  std::string backend, target;
  CompileOptions options() const {
    CompileOptions o;
    if (backend == "cuda") {
      o.device = "cuda";
    } else {
      o.backend = backend;
      o.target = target;
    }
    return o;
  }
};
inline void PrintTo(const Compiled& c, std::ostream* out) { *out << c.backend << " for " << c.target; }

inline std::vector<Compiled> llvm_targets() {
  std::vector<Compiled> all;
  for (const std::string& t : kernel::runnable_targets()) all.push_back({"llvm", t});
  return all;
}

// Of dots with factors in bfloat16 this one adds up in another order.
inline std::vector<Compiled> with_blocks(std::vector<Compiled> all) {
  if (kernel::host_runs("amx") && all.front().backend != "cuda") all.push_back({"llvm", "amx"});
  return all;
}

// In place of all others with HOTLOOP_TEST_CUDA, see test_device.cpp.
inline std::vector<Compiled> all_compiled() {
  if (std::getenv("HOTLOOP_TEST_CUDA") != nullptr) return {{"cuda", "cuda"}};
  std::vector<Compiled> all = llvm_targets();
  all.push_back({"c", kernel::runnable_targets().back()});
  return all;
}

inline std::string name_of_case(const Compiled& c) { return c.backend + "_" + c.target; }

}  // namespace hotloop::testing
