#include "gil.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace hotloop::python {
namespace {

std::atomic<unsigned long> g_ending_in{0};  // the thread that ends the interpreter; 0: it lives
std::atomic<int> g_taking{0};               // threads between looking at that and having the lock
thread_local bool g_given_up = false;       // by a GilReleased of this thread

bool has_lock() { return PyGILState_GetThisThreadState() != nullptr && !g_given_up; }

bool ends_elsewhere() {
  const unsigned long thread = g_ending_in.load();
  return thread != 0 && thread != PyThread_get_thread_ident();
}

// A child has the forking thread alone: nobody else waits for the lock there, nor ends the interpreter.
void in_child() {
  g_taking.store(0);
  if (ends_elsewhere()) g_ending_in.store(0);
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, in_child);

// While one lives, this thread may take the lock: the interpreter does not end before it has it. Or it waits for ever.
class Taking {
 public:
  Taking() {
    g_taking.fetch_add(1);
    if (!ends_elsewhere()) return;
    g_taking.fetch_sub(1);
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  ~Taking() { g_taking.fetch_sub(1); }
  Taking(const Taking&) = delete;
  Taking& operator=(const Taking&) = delete;
};

// Before the interpreter ends: threads that are about to take the lock get it, later ones do not.
void begin_end() {
  g_ending_in.store(PyThread_get_thread_ident());
  PyThreadState* state = PyEval_SaveThread();
  while (g_taking.load() > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  PyEval_RestoreThread(state);
}

}  // namespace

GilReleased::GilReleased() : state_(PyEval_SaveThread()) { g_given_up = true; }

GilReleased::~GilReleased() {
  const Taking taking;
  PyEval_RestoreThread(state_);
  g_given_up = false;
}

GilAcquired::GilAcquired() : had_given_up_(g_given_up) {
  if (has_lock()) {
    state_ = PyGILState_Ensure();
    return;
  }
  const Taking taking;
  state_ = PyGILState_Ensure();
  g_given_up = false;
}

GilAcquired::~GilAcquired() {
  PyGILState_Release(state_);
  g_given_up = had_given_up_;
}

bool python_lives() { return Py_IsInitialized() != 0 && (has_lock() || !ends_elsewhere()); }

std::shared_ptr<PyObject> shared(nb::handle object) {
  return {object.inc_ref().ptr(), [](PyObject* p) {
            if (!python_lives()) return;
            const GilAcquired gil;
            Py_DECREF(p);
          }};
}

void bind_gil(nb::module_& m) {
  m.def("begin_end", &begin_end, "Called before the interpreter ends.");
  nb::module_::import_("atexit").attr("register")(m.attr("begin_end"));
}

}  // namespace hotloop::python
