#include "interrupt.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "bindings.h"
#include "hotloop/jit.h"
#include "runtime/cancel.h"

namespace hotloop::python {
namespace {

unsigned long g_main_thread = 0;
std::atomic<bool> g_interrupted{false};
struct sigaction g_previous;

void on_interrupt(int signal, siginfo_t* info, void* context) {
  g_interrupted.store(true, std::memory_order_relaxed);
  request_cancel();
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    if (g_previous.sa_sigaction != nullptr) g_previous.sa_sigaction(signal, info, context);
  } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(signal);
  }
}

// Puts our handler before Python's for as long as it lives.
class HandlerGuard {
 public:
  HandlerGuard() {
    g_interrupted.store(false, std::memory_order_relaxed);
    struct sigaction action {};
    action.sa_sigaction = on_interrupt;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    installed_ = sigaction(SIGINT, nullptr, &g_previous) == 0 &&
                 ((g_previous.sa_flags & SA_SIGINFO) != 0 || g_previous.sa_handler != SIG_IGN) &&
                 !((g_previous.sa_flags & SA_SIGINFO) == 0 && g_previous.sa_handler == SIG_DFL) &&
                 sigaction(SIGINT, &action, nullptr) == 0;
  }
  ~HandlerGuard() {
    if (installed_) sigaction(SIGINT, &g_previous, nullptr);
    if (g_interrupted.load(std::memory_order_relaxed)) clear_cancel();
  }
  HandlerGuard(const HandlerGuard&) = delete;
  HandlerGuard& operator=(const HandlerGuard&) = delete;

 private:
  bool installed_ = false;
};

bool completed(const std::function<void()>& work, bool main) {
  const nb::gil_scoped_release release;
  try {
    if (main) {
      const HandlerGuard guard;
      work();
    } else {
      work();
    }
    return true;
  } catch (const Cancelled&) {
    while (!main && runtime::cancel_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return false;
  }
}

}  // namespace

void remember_main_thread() {
  g_main_thread = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
}

void run_interruptibly(const std::function<void()>& work) {
  const bool main = PyThread_get_thread_ident() == g_main_thread;
  while (!completed(work, main))
    if (PyErr_CheckSignals() < 0) throw nb::python_error();
}

}  // namespace hotloop::python
