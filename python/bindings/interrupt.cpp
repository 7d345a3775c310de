#include "interrupt.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "bindings.h"
#include "core/cancel.h"
#include "hotloop/cancel.h"

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

// The request to stop has been heard.
void clear_interrupt() {
  if (g_interrupted.exchange(false, std::memory_order_relaxed)) clear_cancel();
}

bool is_main_thread() { return PyThread_get_thread_ident() == g_main_thread; }

// Puts our handler before Python's for as long as the outermost one lives (a callback of a training runs programs, too). The main
// thread's alone.
class HandlerGuard {
 public:
  HandlerGuard() {
    if (depth_++ > 0) return;
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
    --depth_;
    if (installed_) sigaction(SIGINT, &g_previous, nullptr);
    clear_interrupt();
  }
  HandlerGuard(const HandlerGuard&) = delete;
  HandlerGuard& operator=(const HandlerGuard&) = delete;

 private:
  static inline int depth_ = 0;
  bool installed_ = false;
};

// Until the main thread has heard of the interrupt, calls of other threads are stopped, too.
void wait_for_main_thread() {
  while (cancel_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

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
    if (!main) wait_for_main_thread();
    return false;
  }
}

}  // namespace

void remember_main_thread() {
  g_main_thread = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
}

void run_interruptibly(const std::function<void()>& work) {
  const bool main = is_main_thread();
  while (!completed(work, main))
    if (PyErr_CheckSignals() < 0) throw nb::python_error();
}

void run_once_interruptibly(const std::function<void()>& work) {
  const nb::module_ signals = nb::module_::import_("signal");
  const nb::object handler = signals.attr("getsignal")(signals.attr("SIGINT"));
  if (is_main_thread() && handler.is(signals.attr("default_int_handler"))) {
    if (!completed(work, true) && PyErr_CheckSignals() == 0) PyErr_SetNone(PyExc_KeyboardInterrupt);
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return;
  }
  const nb::gil_scoped_release release;
  const NotCancelled unheard;
  work();
}

bool goes_on_after_cancel() {
  if (!is_main_thread()) {
    wait_for_main_thread();
    return true;
  }
  clear_interrupt();
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() < 0) throw nb::python_error();
  return true;
}

}  // namespace hotloop::python
