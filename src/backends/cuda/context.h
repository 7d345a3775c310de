// The driver and this process's state in it: errors in words, the right context on each thread, forks.
#pragma once

#include "backends/cuda/libraries.h"

namespace hotloop::cuda {

class Context {
 public:
  Context(const Driver& functions, DriverContext handle) : driver(functions), handle_(handle) {}

  const Driver driver;
  // Throws what `result` means unless that is success: UserError where memory or time ends or the device fails,
  // InternalError for the rest, such as an address outside of an array. After most of the latter, each call of this
  // process answers with the same error.
  void check(Result result, const char* doing) const;

 private:
  friend class CurrentContext;
  DriverContext handle_;
};

// While it lives, calls of this thread go to `context`; then again where others that use the driver in this process had
// them go. UserError in a process that was forked from one that uses the device: the driver does not answer there.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Context& context_;
  DriverContext before_ = nullptr;
};

// What forked from here on belongs to a process whose driver runs.
void note_use_of_driver();
bool is_forked_from_use();
inline constexpr const char* forked_text =
    "this process was forked from one that uses the device, and no CUDA driver works in both";

}  // namespace hotloop::cuda
