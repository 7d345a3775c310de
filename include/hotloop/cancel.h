// Ending calls and compilations early.
#pragma once

#include <stdexcept>

namespace hotloop {

// What a call of a program or a compilation ends with that was told to end early.
class Cancelled : public std::runtime_error {
 public:
  Cancelled() : std::runtime_error("[run] cancelled") {}
};

// Makes all calls and compilations, in progress and to come, end early by throwing Cancelled, until clear_cancel(). request_cancel()
// may be called from a signal handler.
void request_cancel() noexcept;
void clear_cancel() noexcept;

}  // namespace hotloop
