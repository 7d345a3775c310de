// Python's lock, given up and taken back so that threads survive the interpreter's end. Until Python 3.14 taking the lock while the interpreter
// ends means pthread_exit: it unwinds through C++ that must not throw, and the process aborts. A daemon thread in the middle of a call waits here
// instead, for the end of the process. Functions that are registered with atexit run before, and may wait for threads.
#pragma once

#include <memory>

#include "bindings.h"

namespace hotloop::python {

// Without the lock while it lives. In a thread that holds it.
class GilReleased {
 public:
  GilReleased();
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

// With the lock while it lives, whether the thread holds it already or is not even Python's.
class GilAcquired {
 public:
  GilAcquired();
  ~GilAcquired();
  GilAcquired(const GilAcquired&) = delete;
  GilAcquired& operator=(const GilAcquired&) = delete;

 private:
  bool had_given_up_;
  PyGILState_STATE state_;
};

// A Python object that C++ may copy, keep and let go in any thread, with the lock or without: nb::object counts its references without it, too.
std::shared_ptr<PyObject> shared(nb::handle object);

// Whether a reference can still be given up: not once the interpreter's end has begun, after the functions of atexit.
bool python_lives();

}  // namespace hotloop::python
