// Ending a training by Ctrl-C or a request to terminate.
#pragma once

#include <atomic>

namespace hotloop::cli {

// While one exists, the first SIGINT or SIGTERM sets stop(); a second of the same kind ends the program at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const std::atomic<bool>& stop() const;
  int exit_status() const;  // 128 + the signal's number: 130 after SIGINT, 143 after SIGTERM
};

}  // namespace hotloop::cli
