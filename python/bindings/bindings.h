// What the files of the Python extension share. Each bind_ function adds its part to the module.
#pragma once

#include <nanobind/nanobind.h>

#include "hotloop/graph.h"
#include "limited_api.h"

namespace nb = nanobind;

namespace hotloop::python {

// What a function of Python's C API made; its exception where it made nothing.
inline nb::object checked(PyObject* made) {
  nb::object result = nb::steal(made);
  if (!result.is_valid()) throw nb::python_error();
  return result;
}

void bind_errors(nb::module_& m);
// Makes the exception that is being handled Python's, for functions that nanobind does not wrap.
void set_python_error() noexcept;
void bind_array(nb::module_& m);
void bind_trees(nb::module_& m);
void bind_tracer(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_transforms(nb::module_& m);
void bind_control(nb::module_& m);
void bind_derivatives(nb::module_& m);
void bind_ode(nb::module_& m);
void bind_minimize(nb::module_& m);
void bind_jit(nb::module_& m);
void bind_modules(nb::module_& m);
void bind_optimizers(nb::module_& m);
void bind_fit(nb::module_& m);
void bind_io(nb::module_& m);
void bind_rtneural(nb::module_& m);
void bind_export(nb::module_& m);
void bind_data(nb::module_& m);

}  // namespace hotloop::python
