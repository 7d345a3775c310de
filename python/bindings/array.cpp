// hotloop.Array, and conversions of whatever holds numbers in Python.
#define HOTLOOP_IMPORTS_NUMPY
#include "array.h"

#include <nanobind/stl/string.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "core/convert.h"
#include "core/own_memory.h"
#include "depth.h"
#include "dlpack.h"
#include "gil.h"
#include "hotloop/error.h"
#include "numpy_api.h"

namespace hotloop::python {
namespace {

struct NumpyType {
  DType dtype;
  int number;
};
constexpr NumpyType numpy_types[] = {{DType::Bool, NPY_BOOL}, {DType::I32, NPY_INT32},   {DType::U32, NPY_UINT32},
                                     {DType::I64, NPY_INT64}, {DType::F32, NPY_FLOAT32}, {DType::F64, NPY_FLOAT64}};

// By kind and size, since C has two names for a 64-bit integer and NumPy a number for each.
std::optional<DType> dtype_of_descr(const PyArray_Descr* descr) {
  const auto size = PyDataType_ELSIZE(descr);
  switch (descr->kind) {
    case 'b': return DType::Bool;
    case 'i': return size == 4 ? std::optional(DType::I32) : size == 8 ? std::optional(DType::I64) : std::nullopt;
    case 'u': return size == 4 ? std::optional(DType::U32) : std::nullopt;
    case 'f': return size == 4 ? std::optional(DType::F32) : size == 8 ? std::optional(DType::F64) : std::nullopt;
    default: return std::nullopt;
  }
}

// What a NumPy array of another dtype is cast to; UserError where that would lose something unasked.
DType target_dtype(PyArrayObject* array, const std::string& what) {
  PyArray_Descr* descr = PyArray_DESCR(array);
  if (const auto dtype = dtype_of_descr(descr)) return *dtype;
  const auto size = PyDataType_ELSIZE(descr);
  if ((descr->kind == 'i' || descr->kind == 'u') && size <= 2) return DType::I32;
  if (descr->kind == 'f' && size == 2) return DType::F32;
  const std::string name = text(nb::handle(reinterpret_cast<PyObject*>(descr)));
  if (descr->kind == 'u') {
    if (PyArray_SIZE(array) == 0) return DType::I64;
    const nb::object largest = nb::handle(reinterpret_cast<PyObject*>(array)).attr("max")();
    if (PyObject_RichCompareBool(largest.ptr(), nb::int_(std::numeric_limits<std::int64_t>::max()).ptr(), Py_LE) == 1)
      return DType::I64;
    throw UserError(what, "u64 values must fit i64", "a largest value of " + text(largest),
                    "x.astype(\"float64\"), which rounds them");
  }
  const std::string remedy = descr->kind == 'O'
                                 ? "numpy.asarray(x, dtype=numpy.float32), which fails at what is no number"
                             : descr->kind == 'c'                       ? "the real and imaginary parts as two arrays"
                             : descr->kind == 'M' || descr->kind == 'm' ? "x.astype('int64'), or seconds as float64"
                             : descr->kind == 'U' || descr->kind == 'S'
                                 ? "numbers; of labels those that numpy.unique(x, return_inverse=True)[1] gives them"
                             : descr->kind == 'f' ? "x.astype(numpy.float64)"
                                                  : "an array of numbers";
  throw UserError(what, "elements must be bool, integers or floats of at most 64 bits",
                  "a NumPy array of dtype " + name, remedy);
}

// Releases a Python reference from any thread, also late: after the interpreter's end there is nothing to release.
void drop_reference(PyObject* object) {
  if (!python_lives()) return;
  const GilAcquired gil;
  Py_DECREF(object);
}

Array wrap_numpy(PyArrayObject* array, DType dtype) {
  Py_INCREF(reinterpret_cast<PyObject*>(array));
  auto* object = reinterpret_cast<PyObject*>(array);
  std::vector<std::int64_t> dims(PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
  return Array::wrap(dtype, Shape(dims),
                     std::shared_ptr<void>(PyArray_DATA(array), [object](void*) { drop_reference(object); }));
}

// NumPy's masked arrays give out the numbers under the mask with all others.
void check_unmasked(PyObject* array, const std::string& what) {
  if (PyArray_CheckExact(array)) return;
  const nb::module_ masked = nb::module_::import_("numpy.ma");
  const int is_masked = PyObject_IsInstance(array, nb::object(masked.attr("MaskedArray")).ptr());
  if (is_masked < 0) throw nb::python_error();
  if (is_masked == 0) return;
  const auto count = nb::cast<std::int64_t>(nb::int_(masked.attr("count_masked")(nb::handle(array))));
  if (count == 0) return;
  throw UserError(what, "an array must have a number in each place",
                  "a masked array, " + std::to_string(count) + " of whose elements are masked",
                  "x.filled(0), or whichever number is to stand in their places; in columns of hl.data.Samples masked "
                  "elements are missing values");
}

// The same of arrays in lists.
void check_unmasked_items(PyObject* sequence, const std::string& what) {
  const Depth depth(" in a list of numbers");
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(sequence, i);
    if (PyList_Check(item) || PyTuple_Check(item))
      check_unmasked_items(item, what);
    else if (PyArray_Check(item))
      check_unmasked(item, what);
  }
}

Array from_numpy(PyArrayObject* array, const std::string& what) {
  check_unmasked(reinterpret_cast<PyObject*>(array), what);
  if (PyArray_NDIM(array) > Shape::max_rank)
    throw UserError(what, "an array has at most " + std::to_string(Shape::max_rank) + " axes",
                    std::to_string(PyArray_NDIM(array)) + " axes", "reshape to fewer axes");
  const DType dtype = target_dtype(array, what);
  const auto wanted = dtype_of_descr(PyArray_DESCR(array));
  if (wanted == dtype && PyArray_ISCARRAY_RO(array)) return wrap_numpy(array, dtype);
  // Strided, misaligned, byte-swapped, or narrower: one copy.
  Array copy(dtype, Shape(std::vector<std::int64_t>(PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array))));
  const int number = nb::cast<int>(numpy_dtype(dtype).attr("num"));
  const nb::object target = nb::steal(PyArray_New(&PyArray_Type, PyArray_NDIM(array), PyArray_DIMS(array), number,
                                                  nullptr, copy.raw(), 0, NPY_ARRAY_CARRAY, nullptr));
  if (!target.is_valid() || PyArray_CopyInto(reinterpret_cast<PyArrayObject*>(target.ptr()), array) < 0)
    throw nb::python_error();
  return copy;
}

// Lists of Python numbers come as NumPy's f64 and i64; here Python's numbers are f32 and i32.
Array with_default_dtype(Array array) {
  if (array.dtype() == DType::F64) return array.cast(DType::F32);
  if (array.dtype() != DType::I64) return array;
  for (const std::int64_t v : std::as_const(array).data<std::int64_t>())
    if (v != static_cast<std::int32_t>(v)) return array;
  return array.cast(DType::I32);
}

bool is_numpy_scalar(PyObject* object) { return PyArray_IsScalar(object, Generic); }

Array from_numpy_object(const nb::object& object, const std::string& what) {
  if (!object.is_valid()) throw nb::python_error();
  return from_numpy(reinterpret_cast<PyArrayObject*>(object.ptr()), what);
}

// A share in an array's memory as a Python object: what a view is based on, so that it counts as an owner.
nb::object share_of(const Array& array) {
  return nb::capsule(new Array(array), [](void* share) noexcept { delete static_cast<Array*>(share); });
}

nb::object as_numpy(nb::handle self) {
  const Array& array = live_array(self);
  std::vector<npy_intp> dims(array.shape().dims().begin(), array.shape().dims().end());
  const int number = nb::cast<int>(numpy_dtype(array.dtype()).attr("num"));
  nb::object view = nb::steal(PyArray_New(&PyArray_Type, static_cast<int>(dims.size()), dims.data(), number, nullptr,
                                          const_cast<void*>(array.raw()), 0, NPY_ARRAY_CARRAY_RO, nullptr));
  if (!view.is_valid()) throw nb::python_error();
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(view.ptr()), share_of(array).release().ptr()) < 0)
    throw nb::python_error();
  return view;
}

// The buffer protocol: read-only, C order. Extents and strides live in the view's internal pointer.
struct BufferLayout {
  Array share;
  std::vector<Py_ssize_t> dims, strides;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  if ((flags & PyBUF_WRITABLE) != 0) {
    PyErr_SetString(PyExc_BufferError, "[Array] a hotloop.Array is read-only. Try: numpy.array(x), which copies");
    return -1;
  }
  const Array& array = *nb::inst_ptr<Array>(self);
  if (!array.defined()) {
    PyErr_SetString(PyExc_BufferError, "[Array] the array's memory was donated to a call, and is gone");
    return -1;
  }
  auto layout = std::make_unique<BufferLayout>();
  layout->share = array;
  layout->dims.assign(array.shape().dims().begin(), array.shape().dims().end());
  layout->strides.resize(layout->dims.size());
  auto stride = static_cast<Py_ssize_t>(size_of(array.dtype()));
  for (std::size_t i = layout->dims.size(); i-- > 0; stride *= layout->dims[i]) layout->strides[i] = stride;
  static const char* const formats[] = {"?", "i", "I", "q", "f", "d"};
  view->buf = const_cast<void*>(array.raw());
  view->obj = Py_NewRef(self);
  view->len = static_cast<Py_ssize_t>(array.bytes());
  view->readonly = 1;
  view->itemsize = static_cast<Py_ssize_t>(size_of(array.dtype()));
  view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(formats[static_cast<int>(array.dtype())]) : nullptr;
  view->ndim = static_cast<int>(layout->dims.size());
  view->shape = (flags & PyBUF_ND) != 0 ? layout->dims.data() : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? layout->strides.data() : nullptr;
  view->suboffsets = nullptr;
  view->internal = layout.release();
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) noexcept { delete static_cast<BufferLayout*>(view->internal); }

PyType_Slot array_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                             {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                             {0, nullptr}};

void import_numpy() {
  if (_import_array() < 0) throw nb::python_error();
}

}  // namespace

ValueType ArrayView::type() const {
  return {dtype, Shape(std::span<const std::int64_t>(dims, static_cast<std::size_t>(rank)))};
}

std::string text(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

std::string kind_of(nb::handle object) {
  if (object.is_none()) return "None";
  const std::string name = text(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))).attr("__name__"));
  const bool vowel = !name.empty() && std::string_view("aeiouAEIOU").find(name[0]) != std::string_view::npos;
  return (vowel ? "an " : "a ") + name;
}

bool view_array(PyObject* object, ArrayView& view) {
  if (PyArray_CheckExact(object)) {
    auto* array = reinterpret_cast<PyArrayObject*>(object);
    const auto dtype = dtype_of_descr(PyArray_DESCR(array));
    if (!dtype || !PyArray_ISCARRAY_RO(array) || PyArray_NDIM(array) > Shape::max_rank) return false;
    static_assert(sizeof(npy_intp) == sizeof(std::int64_t));
    view = {PyArray_DATA(array), reinterpret_cast<const std::int64_t*>(PyArray_DIMS(array)), PyArray_NDIM(array),
            *dtype};
    return true;
  }
  static const nb::handle array_type = nb::type<Array>();
  if (nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object))).is(array_type)) {
    const Array& array = live_array(nb::handle(object));
    view = {array.raw(), array.shape().dims().data(), array.shape().rank(), array.dtype()};
    return true;
  }
  return false;
}

Number number_kind(PyObject* object) {
  if (PyFloat_CheckExact(object)) return Number::Float;
  if (PyBool_Check(object)) return Number::Bool;
  if (PyLong_CheckExact(object)) return Number::Int;
  return Number::None;
}

Array snapshot(const Array& array) { return is_own(array.memory()) ? array : array.clone(); }

bool is_array_like(nb::handle h) {
  PyObject* object = h.ptr();
  return number_kind(object) != Number::None || PyArray_Check(object) || is_numpy_scalar(object) ||
         nb::isinstance<Array>(h) || nb::hasattr(h, "__dlpack__") || nb::hasattr(h, "__array__") ||
         nb::hasattr(h, "__array_interface__") ||
         (PyObject_CheckBuffer(object) != 0 && PyBytes_Check(object) == 0 && PyByteArray_Check(object) == 0);
}

Array number_in(nb::handle number, DType dtype, const std::string& where) {
  const nb::object python = nb::borrow(number);
  if (dtype == DType::Bool) return Array::full(dtype, {}, PyObject_IsTrue(number.ptr()) == 1 ? 1 : 0);
  if (is_float(dtype)) return Array::full(dtype, {}, nb::cast<double>(nb::float_(python)));
  const auto refuse = [&]() -> Array {
    throw UserError(where, "a number must fit the array's dtype", text(number) + " with " + std::string(name_of(dtype)),
                    dtype == DType::I64 ? "float(x), which rounds it" : "an array of int64");
  };
  if (number_kind(number.ptr()) == Number::Float) {
    const double whole = std::trunc(PyFloat_AS_DOUBLE(number.ptr()));
    return holds(dtype, whole) ? Array::full(dtype, {}, whole) : refuse();
  }
  const long long value = PyLong_AsLongLong(number.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return refuse();
  }
  const Array wide = Array::scalar(static_cast<std::int64_t>(value));
  const Array scalar = wide.cast(dtype);
  return scalar.cast(DType::I64).data<std::int64_t>()[0] == value ? scalar : refuse();
}

Array to_array(nb::handle h, const std::string& what, Digits digits) {
  PyObject* object = h.ptr();
  if (nb::isinstance<Array>(h)) return live_array(h);
  if (PyArray_Check(object)) return from_numpy(reinterpret_cast<PyArrayObject*>(object), what);
  switch (number_kind(object)) {
    case Number::Float:
      return Array::full(digits == Digits::All ? DType::F64 : DType::F32, {}, PyFloat_AS_DOUBLE(object));
    case Number::Bool: return Array::full(DType::Bool, {}, object == Py_True ? 1 : 0);
    case Number::Int: {
      const long long value = PyLong_AsLongLong(object);
      if (value == -1 && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        throw UserError(what, "an integer must fit 64 bits", text(h), "float(x), which rounds it");
      }
      if (digits == Digits::Default && value == static_cast<std::int32_t>(value))
        return Array::scalar(static_cast<std::int32_t>(value));
      return Array::scalar(static_cast<std::int64_t>(value));
    }
    case Number::None: break;
  }
  if (is_numpy_scalar(object)) return from_numpy_object(nb::steal(PyArray_FromScalar(object, nullptr)), what);
  const nb::object numpy = nb::module_::import_("numpy");
  if (nb::hasattr(h, "__dlpack__")) {
    nb::object viewed;
    try {
      viewed = numpy.attr("from_dlpack")(h);
    } catch (nb::python_error& error) {
      const std::string reason = text(error.value());
      throw UserError(what, "the array must be on the CPU, need no gradient and have a dtype that NumPy knows",
                      kind_of(h) + ", which its __dlpack__ does not give out: " + reason.substr(0, reason.find('\n')),
                      "x.detach().cpu() for PyTorch, x.astype('float32') for bfloat16");
    }
    return from_numpy_object(viewed, what);
  }
  const bool sequence = PyList_Check(object) || PyTuple_Check(object);
  if (!sequence && !is_array_like(h))
    throw UserError(what, "an array must be an Array, a NumPy array, a number, a list of numbers or have __dlpack__",
                    kind_of(h), "");
  if (sequence) check_unmasked_items(object, what);
  nb::object viewed;
  try {
    viewed = numpy.attr("asarray")(h);
  } catch (nb::python_error& error) {
    const std::string reason = error.what();
    throw UserError(what, "NumPy must be able to make an array of it",
                    kind_of(h) + ": " + reason.substr(0, reason.find('\n')), "numbers in rows of one length");
  }
  Array array = from_numpy_object(viewed, what);
  return sequence && digits == Digits::Default ? with_default_dtype(std::move(array)) : array;
}

nb::object to_python(Array array) { return nb::cast(std::move(array)); }

const Array& live_array(const Array& array) {
  if (!array.defined())
    throw UserError("Array", "an array that was donated to a call (donate=) is gone",
                    array.type().str() + " without memory",
                    "the call's result, or hl.asarray(x, copy=True) before the call");
  return array;
}

Array& donatable_array(nb::handle object, const std::string& where, const std::string& path) {
  const std::string requirement = "donated argument " + path + " must be a hotloop.Array that nothing else views";
  const char* copy = "hl.asarray(x, copy=True)";
  if (!nb::isinstance<Array>(object))
    throw UserError(where, requirement, kind_of(object) + ", whose memory is not Hotloop's", copy);
  (void)live_array(object);
  Array& array = *nb::inst_ptr<Array>(object);
  if (!is_sole_owner(array.memory()))
    throw UserError(
        where, requirement,
        array.type().str() + (array.memory().use_count() == 1
                                  ? ", whose memory is another library's"
                                  : ", whose memory is viewed by an array of NumPy or another library, kept by a "
                                    "compiled function, or in use by a call"),
        copy);
  return array;
}

nb::object numpy_dtype(DType dtype) {
  for (const NumpyType& t : numpy_types)
    if (t.dtype == dtype) return nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(t.number)));
  throw InternalError(__FILE__, __LINE__, "a dtype without a NumPy counterpart");
}

DType dtype_of_python(nb::handle object) {
  if (nb::isinstance<nb::str>(object)) {
    const auto name = nb::cast<std::string>(object);
    for (const NumpyType& t : numpy_types)
      if (name_of(t.dtype) == name) return t.dtype;
  }
  if (object.is(nb::handle(reinterpret_cast<PyObject*>(&PyFloat_Type)))) return DType::F32;
  if (object.is(nb::handle(reinterpret_cast<PyObject*>(&PyLong_Type)))) return DType::I32;
  PyArray_Descr* descr = nullptr;
  if (!object.is_none() && PyArray_DescrConverter(object.ptr(), &descr) == NPY_SUCCEED && descr != nullptr) {
    const nb::object owner = nb::steal(reinterpret_cast<PyObject*>(descr));
    if (const auto dtype = dtype_of_descr(descr)) return *dtype;
  }
  PyErr_Clear();
  throw UserError("dtype", "a dtype must be one of bool, int32, uint32, int64, float32, float64", text(object));
}

void bind_array(nb::module_& m) {
  import_numpy();
  nb::class_<Array>(m, "Array", nb::type_slots(array_slots), nb::is_weak_referenceable(),
                    "Dense numbers in row-major order, read-only. numpy.asarray(x) views the memory without a copy.")
      .def_prop_ro(
          "shape",
          [](const Array& a) {
            nb::list dims;
            for (const std::int64_t d : a.shape().dims()) dims.append(d);
            return nb::tuple(dims);
          },
          "Extents, outermost first.")
      .def_prop_ro(
          "ndim", [](const Array& a) { return a.shape().rank(); }, "Number of axes.")
      .def_prop_ro(
          "size", [](const Array& a) { return a.size(); }, "Number of elements.")
      .def_prop_ro("nbytes", [](const Array& a) { return a.bytes(); })
      .def_prop_ro(
          "dtype", [](const Array& a) { return numpy_dtype(a.dtype()); }, "The NumPy dtype.")
      .def_prop_ro(
          "is_donated", [](const Array& a) { return !a.defined(); },
          "Whether a call took the memory (donate=): shape and dtype are all that is left.")
      .def_prop_ro("_address", [](const Array& a) { return reinterpret_cast<std::uintptr_t>(a.raw()); })
      .def("_numpy", [](nb::handle self) { return as_numpy(self); })
      .def(
          "__array__",
          [](nb::handle self, nb::object dtype, nb::object copy) -> nb::object {
            const nb::object view = as_numpy(self);
            const bool other = !dtype.is_none() && !nb::cast<bool>(view.attr("dtype").equal(dtype));
            if (copy.is(nb::handle(Py_False)) && other)
              throw nb::value_error("[Array] another dtype needs a copy, which copy=False forbids");
            if (other) return view.attr("astype")(dtype);
            return copy.is(nb::handle(Py_True)) ? nb::object(view.attr("copy")()) : view;
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack__", &to_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
           nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack_device__", [](const Array&) { return nb::make_tuple(1, 0); })
      .def("__float__", [](const Array& self) {
        const Array& a = live_array(self);
        if (a.size() != 1)
          throw UserError("float", "the array must have one element", a.type().str(),
                          "one element of it, as x[0], or numpy.asarray(x)");
        return a.at(0);
      });
  m.def(
      "asarray", [](nb::handle object, const std::string& what) { return to_array(object, what); },
      nb::arg("object").none(), nb::arg("what") = "asarray");
  m.def(
      "is_array_like", [](nb::handle object) { return is_array_like(object); }, nb::arg("object").none());
  m.def(
      "dtype", [](nb::handle object) { return numpy_dtype(dtype_of_python(object)); }, nb::arg("dtype").none());
  m.def("number_in", [](const std::string& where, nb::handle number, nb::handle dtype) {
    return number_in(number, dtype_of_python(dtype), where);
  });
  m.def("is_own", [](const Array& a) { return is_own(live_array(a).memory()); });
  m.def("copy", [](const Array& a) { return live_array(a).clone(); });
  // The array itself where nobody can write to its memory, else a copy.
  m.def(
      "snapshot",
      [](nb::handle object, const std::string& what) {
        const Array array = to_array(object, what);
        return nb::isinstance<Array>(object) && is_own(array.memory()) ? nb::borrow(object)
                                                                       : to_python(snapshot(array));
      },
      nb::arg("object").none(), nb::arg("what"));
  m.def("cast", [](const Array& a, nb::handle dtype) { return live_array(a).cast(dtype_of_python(dtype)); });
}

}  // namespace hotloop::python
