#include "fields.h"

namespace hotloop::python {
namespace {

// Whether an instance has it: ClassVar and InitVar leave entries among the fields, too, which dataclasses.fields() passes over like this.
bool is_field(PyObject* entry) {
  static PyObject* const name = PyUnicode_InternFromString("_field_type");
  static PyObject* const wanted = nb::object(nb::module_::import_("dataclasses").attr("_FIELD")).release().ptr();
  return checked(PyObject_GetAttr(entry, name)).is(nb::handle(wanted));
}

}  // namespace

PyObject* fields_of_named(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("_fields");
  PyObject* fields = class_attribute(type, name);
  return fields != nullptr && PyTuple_Check(fields) ? fields : nullptr;
}

PyObject* fields_of_dataclass(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__dataclass_fields__");
  PyObject* fields = class_attribute(type, name);
  return fields != nullptr && PyDict_Check(fields) ? fields : nullptr;
}

bool next_field(PyObject* fields, Py_ssize_t& at, PyObject*& key, PyObject*& field) {
  while (PyDict_Next(fields, &at, &key, &field) != 0)
    if (is_field(field)) return true;
  return false;
}

}  // namespace hotloop::python
