// How a compiled program is run and what is told of it: what is taken of its kernel IR once, so that running needs none of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "hotloop/jit.h"
#include "schedule/kernel_ir.h"

namespace hotloop::runtime {

struct RunPlan {
  std::int64_t max_rows = 1, shared_bytes = 0, worker_bytes = 0;
  bool flushes_denormals = false;
  bool fixed_rows = false;  // max_rows are passed to the kernel, whatever a call says
  // How many workers take part in a call with n rows, in the place bit_width(n): between powers of two one number does.
  std::array<std::int32_t, 65> workers_by_width{};
  double alone_ns = -1;    // estimated, of a call by one worker; negative where all take part whatever it costs
  double call_ns = 0;      // estimated, of a call with all rows by the workers that take part
  std::string workers;     // how many, and why; empty: there is nothing to say
  std::int64_t slots = 0;  // through which rows stream that need different numbers of iterations, or 0
  KernelRecord structure;

  int workers_of(std::int64_t rows) const;
  int most_workers() const;
};

// Of as many of `num_workers` as rows are worth: waking the others for less than they save would be a loss.
RunPlan plan_run(const kernel::Program& program, int num_workers, bool fixed_rows);

}  // namespace hotloop::runtime
