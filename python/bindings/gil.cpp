#include "gil.h"

#include <chrono>
#include <thread>

namespace hotloop::python {
namespace {

thread_local bool g_given_up = false;   // by a GilReleased of this thread
thread_local bool g_ends_here = false;  // this thread ends the interpreter: it had the lock when it lived no more

bool has_lock() { return PyGILState_GetThisThreadState() != nullptr && !g_given_up; }

[[noreturn]] void wait_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// take(), which takes the lock: while the interpreter lives, or for whom ends it. Others wait for ever.
template <class Take> void take_if_python_lives(Take&& take) {
  if (!python_lives() && !g_ends_here) wait_for_ever();
  try {
    take();
  } catch (...) {     // the end has begun meanwhile: pthread_exit has unwound as far as this,
    wait_for_ever();  // and would end the process if it were caught for good
  }
}

}  // namespace

GilReleased::GilReleased() {
  g_ends_here = !python_lives();
  state_ = PyEval_SaveThread();
  g_given_up = true;
}

GilReleased::~GilReleased() {
  take_if_python_lives([this] { PyEval_RestoreThread(state_); });
  g_given_up = false;
}

GilAcquired::GilAcquired() : had_given_up_(g_given_up) {
  if (has_lock()) {
    state_ = PyGILState_Ensure();
    return;
  }
  take_if_python_lives([this] { state_ = PyGILState_Ensure(); });
  g_given_up = false;
}

GilAcquired::~GilAcquired() {
  PyGILState_Release(state_);
  g_given_up = had_given_up_;
}

bool python_lives() { return Py_IsInitialized() != 0; }

std::shared_ptr<PyObject> shared(nb::handle object) {
  return {object.inc_ref().ptr(), [](PyObject* p) {
            if (!python_lives()) return;
            const GilAcquired gil;
            Py_DECREF(p);
          }};
}

}  // namespace hotloop::python
