#include "cli/signals.h"

#include <csignal>

namespace hotloop::cli {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> signal_number{SIGINT};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  signal_number.store(number, std::memory_order_relaxed);
  stop_requested.store(true, std::memory_order_relaxed);
}

}  // namespace

StopSignals::StopSignals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (const int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

StopSignals::~StopSignals() {
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, SIG_DFL);
}

const std::atomic<bool>& StopSignals::stop() const { return stop_requested; }
int StopSignals::exit_status() const { return 128 + signal_number.load(std::memory_order_relaxed); }

}  // namespace hotloop::cli
