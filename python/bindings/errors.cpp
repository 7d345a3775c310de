// UserError and InternalError as Python exceptions.
#include "hotloop/error.h"

#include "bindings.h"
#include "hotloop/jit.h"

namespace hotloop::python {

void bind_errors(nb::module_& m) {
  // ValueError, so that code which knows nothing of hotloop can catch it.
  nb::exception<UserError>(m, "UserError", PyExc_ValueError);
  nb::exception<InternalError>(m, "InternalError", PyExc_RuntimeError);
  nb::exception<Cancelled>(m, "Cancelled", PyExc_RuntimeError);
}

}  // namespace hotloop::python
