#include "interrupt.h"

#include <signal.h>

#include "bindings.h"
#include "core/cancel.h"
#include "gil.h"
#include "hotloop/cancel.h"

namespace hotloop::python {
namespace {

unsigned long g_main_thread = 0;
// Of what the main thread runs: only there Python's handler is called, and what it raises. Calls of other threads go on.
CancelToken g_interrupt;
struct sigaction g_previous;

void on_interrupt(int signal, siginfo_t* info, void* context) {
  g_interrupt.request();
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    if (g_previous.sa_sigaction != nullptr) g_previous.sa_sigaction(signal, info, context);
  } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(signal);
  }
}

bool is_main_thread() { return PyThread_get_thread_ident() == g_main_thread; }

// Puts our handler before Python's for as long as the outermost one lives (a callback of a training runs programs, too). The main
// thread's alone.
class HandlerGuard {
 public:
  HandlerGuard() {
    if (depth_++ > 0) return;
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
    g_interrupt.clear();  // it has been heard
  }
  HandlerGuard(const HandlerGuard&) = delete;
  HandlerGuard& operator=(const HandlerGuard&) = delete;

 private:
  static inline int depth_ = 0;
  bool installed_ = false;
  CancelScope scope_{g_interrupt};
};

// Whether `work` came to its end.
bool completed(const std::function<void()>& work, bool main) {
  const GilReleased released;
  try {
    if (main) {
      const HandlerGuard guard;
      work();
    } else {
      work();
    }
    return true;
  } catch (const Cancelled&) {
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
  const GilReleased released;
  const CancelScope unheard(never_cancelled);
  work();
}

void run_briefly(const std::function<void()>& work) {
  try {
    work();
  } catch (const Cancelled&) {
    run_interruptibly(work);
  }
}

bool goes_on_after_cancel() {
  if (!is_main_thread()) return false;
  g_interrupt.clear();
  const GilAcquired gil;
  if (PyErr_CheckSignals() < 0) throw nb::python_error();
  return true;
}

}  // namespace hotloop::python
