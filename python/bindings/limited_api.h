// Python's stable ABI, which the extension is built for from Python 3.12 on (one wheel for all later versions): it has functions in place of
// macros that look into objects, and few of these are called once an argument. Elsewhere the macros stay, which are faster.
#pragma once

#include <Python.h>

namespace hotloop::python {

#ifdef Py_LIMITED_API

#define PyTuple_GET_SIZE PyTuple_Size
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_SET_ITEM PyTuple_SetItem
#define PyList_GET_SIZE PyList_Size
#define PyList_GET_ITEM PyList_GetItem
#define PyDict_GET_SIZE PyDict_Size
#define PyFloat_AS_DOUBLE PyFloat_AsDouble

inline void free_object(PyTypeObject* type, PyObject* object) {
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
}

// An attribute of a class, borrowed from it; null if there is none.
inline PyObject* class_attribute(PyTypeObject* type, PyObject* name) {
  PyObject* found = PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name);
  if (found == nullptr) PyErr_Clear();
  Py_XDECREF(found);
  return found;
}

inline PyObject* bound_method(PyObject* function, PyObject* instance) {
  PyObject* types = PyImport_ImportModule("types");
  PyObject* made = types == nullptr ? nullptr : PyObject_CallMethod(types, "MethodType", "OO", function, instance);
  Py_XDECREF(types);
  return made;
}

#else

inline void free_object(PyTypeObject* type, PyObject* object) { type->tp_free(object); }
inline PyObject* class_attribute(PyTypeObject* type, PyObject* name) { return _PyType_Lookup(type, name); }
inline PyObject* bound_method(PyObject* function, PyObject* instance) { return PyMethod_New(function, instance); }

#endif

}  // namespace hotloop::python
