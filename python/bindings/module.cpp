// The extension module hotloop._core.
#include "bindings.h"
#include "hotloop/error.h"

namespace hotloop::python {
namespace {

// In another interpreter of the process a call would wait for ever: PyGILState_* functions know the main one alone.
void require_main_interpreter() {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return;
  throw UserError("hotloop", "it must be imported in the main interpreter of a process", "a sub-interpreter",
                  "threads, in which calls run beside each other, or processes");
}

}  // namespace

NB_MODULE(_core, m) {
  require_main_interpreter();
  m.doc() = "The engine behind hotloop; use the package, whose names are stable.";
  nb::set_leak_warnings(false);  // executables and arrays may outlive the interpreter's modules
  bind_errors(m);
  bind_array(m);
  bind_trees(m);
  bind_tracer(m);
  bind_ops(m);
  bind_transforms(m);
  bind_derivatives(m);
  bind_control(m);
  bind_jit(m);
  bind_modules(m);
  bind_optimizers(m);
  bind_ode(m);
  bind_minimize(m);
  bind_data(m);
  bind_fit(m);
  bind_io(m);
  bind_rtneural(m);
  bind_export(m);
}

}  // namespace hotloop::python
