// UserError and InternalError as Python exceptions.
#include "hotloop/error.h"

#include <exception>

#include "bindings.h"
#include "hotloop/jit.h"

namespace hotloop::python {

void bind_errors(nb::module_& m) {
  // ValueError, so that code which knows nothing of hotloop can catch it.
  nb::exception<UserError>(m, "UserError", PyExc_ValueError);
  nb::exception<InternalError>(m, "InternalError", PyExc_RuntimeError);
  nb::exception<Cancelled>(m, "Cancelled", PyExc_RuntimeError);
  // Where nothing says more: what could not be made the C++ type that is wanted.
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const nb::cast_error&) {
      PyErr_SetString(PyExc_TypeError,
                      "an argument is of another type than is wanted, or an integer of more than 64 bits");
    }
  });
}

}  // namespace hotloop::python
