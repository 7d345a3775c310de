// UserError and InternalError as Python exceptions.
#include "hotloop/error.h"

#include <array>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "bindings.h"
#include "core/memory.h"
#include "hotloop/cancel.h"

namespace hotloop::python {
namespace {

// Borrowed for ever.
PyObject* g_user_error = nullptr;
PyObject* g_internal_error = nullptr;
PyObject* g_cancelled = nullptr;

// Where nothing says more: what could not be made the C++ type that is wanted.
constexpr const char* wrong_type = "an argument is of another type than is wanted, or an integer of more than 64 bits";

// What remedies are called in Python, longer ones before their parts.
constexpr auto vocabulary = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"cast(x, DType::F32), or select()", "x.astype(hl.float32), or hl.where()"},
    {"cast(x, DType::F32)", "x.astype(hl.float32)"},
    {"cast(a, DType::F32)", "a.astype(hl.float32)"},
    {"cast(x, DType::I32)", "x.astype(hl.int32)"},
    {"cast(indices, DType::I32)", "indices.astype(hl.int32)"},
    {"cast(start, DType::I32)", "start.astype(hl.int32)"},
    {"cast them to f32, classes to i32", "x.astype(hl.float32), of classes y.astype(hl.int32)"},
    {"cast() one of them", "x.astype(dtype) of one of them"},
    {"cast one of them", "x.astype(dtype) of one of them"},
    {"cast() them to f32", "x.astype(hl.float32) of each"},
    {"cast them to f32", "x.astype(hl.float32) of each"},
    {"cast() them to i32", "x.astype(hl.int32)"},
    {"cast it to f32", "x.astype(hl.float32)"},
    {"cast it to a float", "x.astype(hl.float32)"},
    {"cast()", "astype()"},
    {"iota(DType::I32, ...)", "hl.arange(...)"},
    {"DType::I64", "hl.int64"},
    {"compare, as in greater(x, y)", "a comparison, as x > y"},
    {"clone()", "hl.asarray(x, copy=True)"},
    {"narrow() for unequal parts", "slices for unequal parts"},
    {"make it a Loss::Pointwise", "a loss of hl.losses, or a training step of one's own, with hl.value_and_grad"},
});

// A message of the engine with its remedy, after the last "Try: ", in Python's words.
std::string in_python(std::string message) {
  const std::size_t remedy = message.rfind("Try: ");
  if (remedy == std::string::npos) return message;
  for (const auto& [engine, python] : vocabulary)
    for (std::size_t at = message.find(engine, remedy); at != std::string::npos;
         at = message.find(engine, at + python.size()))
      message.replace(at, engine.size(), python);
  return message;
}

void set_memory_error(const std::bad_alloc& error) noexcept {
  const auto* array = dynamic_cast<const OutOfMemory*>(&error);
  PyErr_Format(PyExc_MemoryError, "[memory] what a call computes must fit the memory. Received: %s. Try: %s",
               array != nullptr ? array->array() : "a request for which there is none",
               "smaller arrays, or fewer rows at a time");
}

void set_user_error(const UserError& error) noexcept {
  try {
    PyErr_SetString(g_user_error, in_python(error.what()).c_str());
  } catch (const std::bad_alloc& none) {
    set_memory_error(none);
  }
}

}  // namespace

void bind_errors(nb::module_& m) {
  // ValueError, so that code which knows nothing of hotloop can catch it.
  g_user_error = nb::object(nb::exception<UserError>(m, "UserError", PyExc_ValueError)).release().ptr();
  g_internal_error = nb::object(nb::exception<InternalError>(m, "InternalError", PyExc_RuntimeError)).release().ptr();
  g_cancelled = nb::object(nb::exception<Cancelled>(m, "Cancelled", PyExc_RuntimeError)).release().ptr();
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const UserError& found) {
      set_user_error(found);
    } catch (const std::bad_alloc& none) {
      set_memory_error(none);
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
    set_user_error(error);
  } catch (const InternalError& error) {
    PyErr_SetString(g_internal_error, error.what());
  } catch (const Cancelled& error) {
    PyErr_SetString(g_cancelled, error.what());
  } catch (const nb::cast_error&) {
    PyErr_SetString(PyExc_TypeError, wrong_type);
  } catch (const std::bad_alloc& none) {
    set_memory_error(none);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

}  // namespace hotloop::python
