// Values that a program is compiled for: compared by what they hold, and kept so that writes to the caller's do not reach them.
#pragma once

#include "bindings.h"

namespace hotloop::python {

// Whether a program compiled for `a` serves `b`: the same types, and equal; lists, tuples, dicts and NumPy arrays element by element,
// floats by their bits, everything else by identity or ==. Throws what == raises.
bool same_static(PyObject* a, PyObject* b);

// The value with its lists, dicts, sets and NumPy arrays copied, in tuples too; everything else is itself.
nb::object frozen(nb::handle value);

}  // namespace hotloop::python
