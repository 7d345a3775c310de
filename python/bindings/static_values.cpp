#include "static_values.h"

#include <cstring>

#include "array.h"
#include "depth.h"
#include "numpy_api.h"

namespace hotloop::python {
namespace {

constexpr const char* in_a_static_value = " in a static argument";

bool same_sequence(PyObject* a, PyObject* b) {
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(a);
  if (size != PySequence_Fast_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!same_static(PySequence_Fast_GET_ITEM(a, i), PySequence_Fast_GET_ITEM(b, i))) return false;
  return true;
}

bool same_dict(PyObject* a, PyObject* b) {
  if (PyDict_GET_SIZE(a) != PyDict_GET_SIZE(b)) return false;
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(a, &at, &key, &value) != 0;) {
    PyObject* other = PyDict_GetItemWithError(b, key);
    if (other == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (other == nullptr || !same_static(value, other)) return false;
  }
  return true;
}

bool same_view(const ArrayView& a, const ArrayView& b) {
  const ValueType type = a.type();
  return b.has_type(type) &&
         std::memcmp(a.data, b.data, static_cast<std::size_t>(type.shape.size()) * size_of(type.dtype)) == 0;
}

// Of dtypes or layouts that have no view.
bool same_numpy(PyObject* a, PyObject* b) {
  auto *x = reinterpret_cast<PyArrayObject*>(a), *y = reinterpret_cast<PyArrayObject*>(b);
  if (PyArray_NDIM(x) != PyArray_NDIM(y) || !PyArray_CompareLists(PyArray_DIMS(x), PyArray_DIMS(y), PyArray_NDIM(x)) ||
      !PyArray_EquivTypes(PyArray_DESCR(x), PyArray_DESCR(y)))
    return false;
  const nb::object equal = checked(PyObject_RichCompare(a, b, Py_EQ));
  return nb::cast<bool>(nb::bool_(equal.attr("all")()));
}

}  // namespace

bool same_static(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {
    const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return std::memcmp(&x, &y, sizeof x) == 0;
  }
  if (PyList_CheckExact(a) || PyTuple_CheckExact(a) || PyDict_CheckExact(a)) {
    const Depth depth(in_a_static_value);
    return PyDict_CheckExact(a) ? same_dict(a, b) : same_sequence(a, b);
  }
  if (ArrayView x, y; view_array(a, x) && view_array(b, y)) return same_view(x, y);
  if (PyArray_Check(a)) return same_numpy(a, b);
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) throw nb::python_error();
  return equal == 1;
}

nb::object frozen(nb::handle value) {
  PyObject* object = value.ptr();
  if (PyArray_Check(object)) return value.attr("copy")();
  if (PySet_Check(object)) return checked(PySet_New(object));
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object) && !PyDict_CheckExact(object)) return nb::borrow(value);
  const Depth depth(in_a_static_value);
  if (PyDict_CheckExact(object)) {
    nb::dict copy;
    PyObject *key = nullptr, *child = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &child) != 0;) copy[nb::handle(key)] = frozen(child);
    return copy;
  }
  nb::list copy;
  bool changed = false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    const nb::handle child = PySequence_Fast_GET_ITEM(object, i);
    const nb::object kept = frozen(child);
    changed |= !kept.is(child);
    copy.append(kept);
  }
  if (PyList_CheckExact(object)) return copy;
  return changed ? nb::object(nb::tuple(copy)) : nb::borrow(value);
}

}  // namespace hotloop::python
