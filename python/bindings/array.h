// Arrays across the border: what Python hands in as hotloop::Array, and Array as a Python object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bindings.h"
#include "hotloop/array.h"

namespace hotloop::python {

std::string text(nb::handle object);     // str(object)
std::string kind_of(nb::handle object);  // for a message: "a list", "an int", "None"

// An argument read without making an object of it: where its elements lie, and their type.
struct ArrayView {
  const void* data = nullptr;
  const std::int64_t* dims = nullptr;
  int rank = 0;
  DType dtype = DType::F32;

  bool has_type(const ValueType& type) const {
    if (dtype != type.dtype || rank != type.shape.rank()) return false;
    for (int i = 0; i < rank; ++i)
      if (dims[i] != type.shape[i]) return false;
    return true;
  }
  ValueType type() const;
};

// Views `object` if it is an Array, or a NumPy array of a supported dtype that is aligned, contiguous and of native byte order.
// The view is good while the object lives. False for everything else.
bool view_array(PyObject* object, ArrayView& view);

// A Python number: bool, int or float itself, no subclass. A number takes the dtype of what it meets.
enum class Number { None, Bool, Int, Float };
Number number_kind(PyObject* object);

enum class Digits { Default, All };
// `object` as an Array, sharing its memory where the layout allows and copying where not: Array, NumPy arrays and scalars,
// numbers, sequences of numbers, anything with __dlpack__, the buffer protocol or __array__. Floats of lists and Python
// floats become f32, integers i32 (i64 if they do not fit), with Digits::All f64 and i64. `what` names the argument in the UserError for
// anything else.
Array to_array(nb::handle object, const std::string& what, Digits digits = Digits::Default);
// A Python number (number_kind) as a scalar of `dtype`. UserError of `where` if it is an integer's and the number does not fit it; a fraction is cut off.
Array number_in(nb::handle number, DType dtype, const std::string& where);
// The array as it is now, whoever writes to what it wraps: a copy, unless its memory is the library's own, which nobody writes to.
Array snapshot(const Array& array);
// Whether to_array would take it for an array, and not for a static value.
bool is_array_like(nb::handle object);

nb::object to_python(Array array);  // hotloop.Array

// The array itself. UserError for one whose memory a call took (donate=).
const Array& live_array(const Array& array);
inline const Array& live_array(nb::handle object) { return live_array(*nb::inst_ptr<Array>(object)); }
// The Array of `object`, which must be a hotloop.Array that alone holds memory of the library's own, to be moved from. UserError naming
// the argument, `path` of `where`, otherwise.
Array& donatable_array(nb::handle object, const std::string& where, const std::string& path);

// The NumPy dtype of a DType, and back from whatever NumPy's dtype() takes, or from "f32", "i64", ...
nb::object numpy_dtype(DType dtype);
DType dtype_of_python(nb::handle object);

}  // namespace hotloop::python
