// The fields of dataclasses and named tuples, as their classes list them.
#pragma once

#include "bindings.h"

namespace hotloop::python {

// The tuple of field names of a named tuple's type, borrowed; null for any other type.
PyObject* fields_of_named(PyTypeObject* type);

// The dict of fields that @dataclass left in the class, in order, see next_field(); borrowed; null for any other type.
PyObject* fields_of_dataclass(PyTypeObject* type);
// The next field that an instance has, from `at` on (0 is the first). False after the last one.
bool next_field(PyObject* fields, Py_ssize_t& at, PyObject*& key, PyObject*& field);

}  // namespace hotloop::python
