// The flag that says that calls and compilations are to end early. Running kernels poll it once a block and once an outer iteration,
// compilation between passes, levels of a schedule and functions.
#pragma once

#include <cstdint>

namespace hotloop {

const std::int32_t* cancel_flag();  // for KernelContext::cancel, of calls of this thread
bool cancel_requested();
void leave_if_cancelled();  // throws Cancelled

// While one lives, requests to end early do not reach what its thread runs: for a call that writes over its inputs, which nobody could
// begin again.
class NotCancelled {
 public:
  NotCancelled();
  ~NotCancelled();
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;
};

}  // namespace hotloop
