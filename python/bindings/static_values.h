// Values that a program is compiled for: compared by what they hold, and kept so that writes to the caller's do not reach them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bindings.h"

namespace hotloop::python {

// What a value holds, written down: its types, the bits of its floats and arrays, its items in order, and the objects inside that only their own ==
// and hash tell about. Lists, dicts, sets, tuples, named tuples, dataclasses that compare by their fields, NumPy's arrays and scalars, arrays with __dlpack__
// and whatever else has no hash (taken apart as copy.copy does) are written down. All others, as functions, modules and objects of classes
// that say nothing about ==, are kept.
class StaticValue {
 public:
  // UserError for a value that has no hash and cannot be taken apart.
  explicit StaticValue(nb::handle value);
  // Whether a program compiled for this value serves `value`. Throws what == raises.
  bool holds(PyObject* value) const { return value == itself_ || compare(value); }
  // The objects inside, which it owns: to be let go of in a thread with the GIL, or released after the interpreter's end.
  std::vector<nb::object>& objects() { return objects_; }
  const std::vector<nb::object>& objects() const { return objects_; }

 private:
  bool compare(PyObject* value) const;

  std::string bytes_;
  std::vector<nb::object> objects_;
  PyObject* itself_ = nullptr;  // if nothing in it can change; one of the objects
};

// Whether a program compiled for `a` as it is now serves `b`.
bool same_static(PyObject* a, PyObject* b);
// The same for values that are the same.
std::size_t hash_static(PyObject* value);

}  // namespace hotloop::python
