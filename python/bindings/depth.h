// One level of a recursion over Python's containers, which may hold themselves: RecursionError where Python's own code would give it.
#pragma once

#include "bindings.h"

namespace hotloop::python {

class Depth {
 public:
  // `where` ends the message: " in a tree".
  explicit Depth(const char* where) {
    if (Py_EnterRecursiveCall(where) != 0) throw nb::python_error();
  }
  ~Depth() { Py_LeaveRecursiveCall(); }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
};

}  // namespace hotloop::python
