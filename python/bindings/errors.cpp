// UserError and InternalError as Python exceptions.
#include "hotloop/error.h"

#include <exception>
#include <new>

#include "bindings.h"
#include "hotloop/cancel.h"

namespace hotloop::python {
namespace {

// Borrowed for ever.
PyObject* g_user_error = nullptr;
PyObject* g_internal_error = nullptr;
PyObject* g_cancelled = nullptr;

// Where nothing says more: what could not be made the C++ type that is wanted.
constexpr const char* wrong_type = "an argument is of another type than is wanted, or an integer of more than 64 bits";

}  // namespace

void bind_errors(nb::module_& m) {
  // ValueError, so that code which knows nothing of hotloop can catch it.
  g_user_error = nb::object(nb::exception<UserError>(m, "UserError", PyExc_ValueError)).release().ptr();
  g_internal_error = nb::object(nb::exception<InternalError>(m, "InternalError", PyExc_RuntimeError)).release().ptr();
  g_cancelled = nb::object(nb::exception<Cancelled>(m, "Cancelled", PyExc_RuntimeError)).release().ptr();
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const nb::cast_error&) {
      PyErr_SetString(PyExc_TypeError, wrong_type);
    }
  });
}

void set_python_error() noexcept {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const UserError& error) {
    PyErr_SetString(g_user_error, error.what());
  } catch (const InternalError& error) {
    PyErr_SetString(g_internal_error, error.what());
  } catch (const Cancelled& error) {
    PyErr_SetString(g_cancelled, error.what());
  } catch (const nb::cast_error&) {
    PyErr_SetString(PyExc_TypeError, wrong_type);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

}  // namespace hotloop::python
