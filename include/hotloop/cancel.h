// Ending calls and compilations early.
#pragma once

#include <stdexcept>

namespace hotloop {

// What a call of a program or a compilation ends with that was told to end early.
class Cancelled : public std::runtime_error {
 public:
  Cancelled() : std::runtime_error("[run] cancelled") {}
};

// Makes calls and compilations of all threads, in progress and to come, end early by throwing Cancelled, until clear_cancel(); all but steps of
// a Stream::Voice. A call during which something was requested ends with Cancelled even if that was cleared before its end. Kernels look once a block of work and once
// an iteration of a loop, compilation between its steps, of which one may take seconds for a large program. request_cancel() may be called
// from a signal handler.
void request_cancel() noexcept;
void clear_cancel() noexcept;

}  // namespace hotloop
