#include "static_values.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "array.h"
#include "depth.h"
#include "fields.h"
#include "hotloop/error.h"
#include "numpy_api.h"

namespace hotloop::python {
namespace {

constexpr const char* in_a_static_value = " in a static argument";
constexpr const char* static_argument = "static argument";

enum class Tag : char {
  Object,
  Float,
  Complex,
  List,
  Tuple,
  Named,
  Dict,
  Set,
  FrozenSet,
  Slice,
  Data,
  Array,
  Numpy,
  Parts
};

// By type and ==.
bool same_object(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) throw nb::python_error();
  return equal == 1;
}

// Takes what walk() writes down of a value. False: no more is wanted.
class Writer {
 public:
  Writer() = default;
  virtual ~Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  virtual bool bytes(const void* data, std::size_t size) = 0;
  // One that its own == and hash tell about, or a type.
  virtual bool object(PyObject* object) = 0;
  // Whether it knows the value already as such an object. It has then been taken.
  virtual bool knows(PyObject*) { return false; }

  bool tag(Tag tag) { return bytes(&tag, sizeof tag); }
  bool number(double x) { return bytes(&x, sizeof x); }
  bool count(Py_ssize_t n) { return bytes(&n, sizeof n); }
};

class Recorder final : public Writer {
 public:
  Recorder(std::string& bytes, std::vector<nb::object>& objects) : bytes_(bytes), objects_(objects) {}
  bool bytes(const void* data, std::size_t size) override {
    bytes_.append(static_cast<const char*>(data), size);
    return true;
  }
  bool object(PyObject* object) override {
    tag(Tag::Object);
    objects_.push_back(nb::borrow(object));
    return true;
  }
  bool took_object_alone() const { return bytes_.size() == sizeof(Tag) && objects_.size() == 1; }

 private:
  std::string& bytes_;
  std::vector<nb::object>& objects_;
};

// Compares with what a Recorder took.
class Comparer final : public Writer {
 public:
  Comparer(std::string_view bytes, const std::vector<nb::object>& objects)
      : bytes_(bytes), next_(objects.data()), end_(next_ + objects.size()) {}
  bool bytes(const void* data, std::size_t size) override {
    if (size > bytes_.size() || (size > 0 && std::memcmp(bytes_.data(), data, size) != 0)) return false;
    bytes_.remove_prefix(size);
    return true;
  }
  bool object(PyObject* object) override {
    if (!tag(Tag::Object) || next_ == end_) return false;
    return same_object(next_++->ptr(), object);
  }
  bool knows(PyObject* object) override {
    return !bytes_.empty() && bytes_[0] == static_cast<char>(Tag::Object) && next_ != end_ && next_->is(object) &&
           this->object(object);
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  const nb::object* next_;
  const nb::object* end_;
};

class Hasher final : public Writer {
 public:
  bool bytes(const void* data, std::size_t size) override {
    return mix(std::hash<std::string_view>{}({static_cast<const char*>(data), size}));
  }
  bool object(PyObject* object) override {
    const Py_hash_t hash = PyObject_Hash(object);
    if (hash == -1) throw nb::python_error();
    return mix(static_cast<std::size_t>(hash));
  }
  std::size_t hash() const { return hash_; }

 private:
  bool mix(std::size_t value) {
    hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 32;
    return true;
  }
  std::size_t hash_ = 0;
};

PyObject* type_of(PyObject* value) { return reinterpret_cast<PyObject*>(Py_TYPE(value)); }

bool walk(PyObject* value, Writer& to);

bool walk_items(PyObject* sequence, Writer& to) {
  if (!to.count(PySequence_Fast_GET_SIZE(sequence))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i)
    if (!walk(nb::borrow(PySequence_Fast_GET_ITEM(sequence, i)).ptr(), to)) return false;
  return true;
}

bool walk_dict(PyObject* dict, Writer& to) {
  if (!to.count(PyDict_GET_SIZE(dict))) return false;
  PyObject *next_key = nullptr, *next_value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &next_key, &next_value) != 0;) {
    const nb::object key = nb::borrow(next_key), value = nb::borrow(next_value);
    if (!walk(key.ptr(), to) || !walk(value.ptr(), to)) return false;
  }
  return true;
}

// Equal sets in one order, whatever order their items came in.
bool walk_set(PyObject* set, Writer& to) {
  if (!to.count(PySet_Size(set))) return false;
  std::vector<std::pair<std::size_t, nb::object>> items;
  for (const nb::handle item : nb::list(nb::borrow(set))) items.emplace_back(hash_static(item.ptr()), nb::borrow(item));
  std::ranges::stable_sort(items, {}, [](const auto& item) { return item.first; });
  return std::ranges::all_of(items, [&](const auto& item) { return walk(item.second.ptr(), to); });
}

bool walk_view(PyObject* type, const ArrayView& view, Writer& to) {
  std::size_t size = size_of(view.dtype);
  for (int i = 0; i < view.rank; ++i) size *= static_cast<std::size_t>(view.dims[i]);
  return to.tag(Tag::Array) && to.object(type) && to.bytes(&view.dtype, sizeof view.dtype) && to.count(view.rank) &&
         to.bytes(view.dims, static_cast<std::size_t>(view.rank) * sizeof *view.dims) && to.bytes(view.data, size);
}

// Of `type` is what the array was made of: itself, or a scalar.
bool walk_numpy(PyObject* type, PyArrayObject* array, Writer& to) {
  const nb::object copy = checked(PyArray_NewCopy(array, NPY_CORDER));
  if (ArrayView view; view_array(copy.ptr(), view)) return walk_view(type, view, to);
  auto* dense = reinterpret_cast<PyArrayObject*>(copy.ptr());
  if (!to.tag(Tag::Numpy) || !to.object(type) || !to.object(reinterpret_cast<PyObject*>(PyArray_DESCR(dense))) ||
      !to.count(PyArray_NDIM(dense)))
    return false;
  for (int i = 0; i < PyArray_NDIM(dense); ++i)
    if (!to.count(PyArray_DIMS(dense)[i])) return false;
  // Objects are pointers there, and records may have gaps.
  const char kind = PyArray_DESCR(dense)->kind;
  if (kind == 'O' || kind == 'V') return walk(nb::object(copy.attr("tolist")()).ptr(), to);
  return to.bytes(PyArray_DATA(dense), static_cast<std::size_t>(PyArray_NBYTES(dense)));
}

// An array of a class of its own: what else its instance has, as a mask.
bool walk_attributes(PyObject* value, Writer& to) {
  const nb::object attributes = nb::getattr(nb::handle(value), "__dict__", nb::none());
  return walk(attributes.ptr(), to);
}

bool compares_by_fields(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__eq__");
  return class_attribute(type, name) != class_attribute(&PyBaseObject_Type, name);
}

bool walk_dataclass(PyObject* value, PyObject* fields, Writer& to) {
  static PyObject* const compare = PyUnicode_InternFromString("compare");
  if (!to.tag(Tag::Data) || !to.object(type_of(value))) return false;
  PyObject *key = nullptr, *field = nullptr;
  for (Py_ssize_t at = 0; next_field(fields, at, key, field);) {
    if (checked(PyObject_GetAttr(field, compare)).is(nb::handle(Py_False))) continue;
    if (!walk(checked(PyObject_GetAttr(value, key)).ptr(), to)) return false;
  }
  return true;
}

[[noreturn]] void refuse(PyObject* value, const std::string& reason, const char* remedy) {
  throw UserError(static_argument,
                  "a value that a function is compiled for must have a hash, or be one that copy.copy can copy",
                  kind_of(value) + reason, remedy);
}

// The parts that copy.copy would make another one of.
bool walk_parts(PyObject* value, Writer& to) {
  nb::object parts;
  try {
    parts = nb::handle(value).attr("__reduce_ex__")(4);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    const std::string reason = text(error.value());
    refuse(value, ": " + reason, "a __hash__ beside its __eq__, or a frozen dataclass");
  }
  if (!to.tag(Tag::Parts) || !to.object(type_of(value))) return false;
  if (!PyTuple_CheckExact(parts.ptr())) return walk(parts.ptr(), to);
  if (!to.count(PyTuple_GET_SIZE(parts.ptr()))) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.ptr()); ++i) {
    nb::object part = nb::borrow(PyTuple_GET_ITEM(parts.ptr(), i));
    if (PyIter_Check(part.ptr())) part = nb::list(part);  // the items of a list or dict
    if (!walk(part.ptr(), to)) return false;
  }
  return true;
}

bool has_attribute(PyObject* value, PyObject* name) { return class_attribute(Py_TYPE(value), name) != nullptr; }

// Neither a number nor one of Python's containers, NumPy's arrays or dataclasses.
bool walk_other(PyObject* value, Writer& to) {
  static PyObject* const dlpack = PyUnicode_InternFromString("__dlpack__");
  static PyObject* const array = PyUnicode_InternFromString("__array__");
  if (has_attribute(value, dlpack)) {
    const Array made = to_array(value, static_argument);
    return walk_view(type_of(value), {made.raw(), made.shape().dims().data(), made.shape().rank(), made.dtype()}, to);
  }
  if (PyObject_Hash(value) != -1) return to.object(value);
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
  PyErr_Clear();
  if (has_attribute(value, array)) refuse(value, ", an array without a hash", "numpy.asarray(x)");
  return walk_parts(value, to);
}

// Of numbers, strings and types that only their own == tells about.
bool is_plain(PyObject* value) {
  return PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) || PyBool_Check(value) ||
         value == Py_None || PyType_Check(value);
}

// Whether nothing in it can be written to, as in most options: an axis, a shape.
bool is_constant(PyObject* value) {
  if (!PyTuple_CheckExact(value)) return is_plain(value) || PyFloat_CheckExact(value) || PyComplex_CheckExact(value);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i)
    if (!is_constant(PyTuple_GET_ITEM(value, i))) return false;
  return true;
}

// Writes down a value. False where the writer wanted no more.
bool walk(PyObject* value, Writer& to) {
  if (to.knows(value)) return true;
  if (PyFloat_CheckExact(value)) return to.tag(Tag::Float) && to.number(PyFloat_AS_DOUBLE(value));
  if (is_plain(value)) return to.object(value);
  if (PyComplex_CheckExact(value))
    return to.tag(Tag::Complex) && to.number(PyComplex_RealAsDouble(value)) && to.number(PyComplex_ImagAsDouble(value));
  const Depth depth(in_a_static_value);
  if (PyTuple_CheckExact(value)) return to.tag(Tag::Tuple) && walk_items(value, to);
  if (PyList_CheckExact(value)) return to.tag(Tag::List) && walk_items(value, to);
  if (PyDict_CheckExact(value)) return to.tag(Tag::Dict) && walk_dict(value, to);
  if (ArrayView view; view_array(value, view)) return walk_view(type_of(value), view, to);
  if (PyArray_Check(value))
    return walk_numpy(type_of(value), reinterpret_cast<PyArrayObject*>(value), to) &&
           (PyArray_CheckExact(value) || walk_attributes(value, to));
  if (PyArray_IsScalar(value, Generic)) {
    const nb::object scalar = checked(PyArray_FromScalar(value, nullptr));
    return walk_numpy(type_of(value), reinterpret_cast<PyArrayObject*>(scalar.ptr()), to);
  }
  if (PySet_CheckExact(value)) return to.tag(Tag::Set) && walk_set(value, to);
  if (PyFrozenSet_CheckExact(value)) return to.tag(Tag::FrozenSet) && walk_set(value, to);
  if (PySlice_Check(value)) {
    if (!to.tag(Tag::Slice)) return false;
    for (const char* part : {"start", "stop", "step"})
      if (!walk(nb::object(nb::handle(value).attr(part)).ptr(), to)) return false;
    return true;
  }
  if (PyObject* fields = fields_of_dataclass(Py_TYPE(value)); fields != nullptr && compares_by_fields(Py_TYPE(value)))
    return walk_dataclass(value, fields, to);
  if (PyTuple_Check(value) && fields_of_named(Py_TYPE(value)) != nullptr)
    return to.tag(Tag::Named) && to.object(type_of(value)) && walk_items(value, to);
  // Subclasses, whose == may see less than a function does: of dicts not their order, of floats not the sign of 0.
  if (PyTuple_Check(value) || PyList_Check(value) || PyDict_Check(value) || PyAnySet_Check(value) ||
      PyFloat_Check(value) || PyComplex_Check(value))
    return walk_parts(value, to);
  return walk_other(value, to);
}

}  // namespace

StaticValue::StaticValue(nb::handle value) {
  Recorder recorder(bytes_, objects_);
  walk(value.ptr(), recorder);
  if (!is_constant(value.ptr()) && !recorder.took_object_alone()) return;
  objects_.push_back(nb::borrow(value));
  itself_ = value.ptr();
}

bool StaticValue::compare(PyObject* value) const {
  Comparer comparer(bytes_, objects_);
  return walk(value, comparer) && comparer.at_end();
}

bool same_static(PyObject* a, PyObject* b) {
  if (a == b || is_plain(a)) return same_object(a, b);
  return Py_TYPE(a) == Py_TYPE(b) && StaticValue(a).holds(b);
}

std::size_t hash_static(PyObject* value) {
  Hasher hasher;
  walk(value, hasher);
  return hasher.hash();
}

}  // namespace hotloop::python
