#include "hotloop/array.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ostream>

#include "core/convert.h"
#include "core/memory.h"
#include "core/own_memory.h"
#include "core/print_number.h"
#include "hotloop/error.h"

namespace hotloop {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::Bool: return 1;
    case DType::I32:
    case DType::U32:
    case DType::F32: return 4;
    case DType::I64:
    case DType::F64: return 8;
  }
  return 0;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::Bool: return "bool";
    case DType::I32: return "i32";
    case DType::U32: return "u32";
    case DType::I64: return "i64";
    case DType::F32: return "f32";
    case DType::F64: return "f64";
  }
  return "?";
}

DType dtype_from_name(std::string_view name) {
  for (DType d : {DType::Bool, DType::I32, DType::U32, DType::I64, DType::F32, DType::F64})
    if (name_of(d) == name) return d;
  throw UserError("dtype", "a dtype must be one of bool, i32, u32, i64, f32, f64", std::string(name));
}

Shape::Shape(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(max_rank))
    throw UserError("shape", "an array has at most " + std::to_string(max_rank) + " axes",
                    std::to_string(dims.size()) + " axes", "reshape to fewer axes");
  for (std::int64_t d : dims) {
    if (d < 0)
      throw UserError("shape", "extents must not be negative", std::to_string(d),
                      d == -1 ? "the number itself: -1 does not stand for what the others leave" : "");
    dims_[static_cast<std::size_t>(rank_++)] = d;
  }
}

std::int64_t Shape::size() const {
  std::uint64_t n = 1;  // more than can be counted wraps around: check_num_elements() refuses the types of such shapes
  for (std::int64_t d : dims()) n *= static_cast<std::uint64_t>(d);
  return static_cast<std::int64_t>(n);
}

bool Shape::operator==(const Shape& other) const { return std::ranges::equal(dims(), other.dims()); }

Shape Shape::with_inserted(int axis, std::int64_t extent) const {
  std::vector<std::int64_t> d = vec();
  d.insert(d.begin() + axis, extent);
  return Shape(d);
}

Shape Shape::without(int axis) const {
  std::vector<std::int64_t> d = vec();
  d.erase(d.begin() + axis);
  return Shape(d);
}

void Shape::push_back(std::int64_t extent) { *this = with_inserted(rank_, extent); }

std::string Shape::str() const {
  std::string s = "(";
  for (int i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string((*this)[i]);
  return s + (rank_ == 1 ? ",)" : ")");
}

std::string ValueType::str() const {
  std::string s = std::string(name_of(dtype)) + "[";
  for (int i = 0; i < shape.rank(); ++i) s += (i ? "," : "") + std::to_string(shape[i]);
  return s + "]";
}

Array::Array(DType dtype, const Shape& shape) : type_{dtype, shape} {
  check_num_elements("array", type_);
  constexpr std::size_t alignment = 64;
  const std::size_t size = (std::max<std::size_t>(bytes(), 1) + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(alignment, size);
  if (p == nullptr) throw OutOfMemory(type_.str(), static_cast<double>(bytes()));
  memory_ = std::shared_ptr<void>(p, OwnMemory{});
}

Array Array::zeros(DType dtype, const Shape& shape) {
  Array a(dtype, shape);
  std::memset(a.raw(), 0, a.bytes());
  return a;
}

Array Array::full(DType dtype, const Shape& shape, double value) {
  if (!holds(dtype, value))
    throw UserError("array", "full() takes a number of the dtype, " + std::string(name_of(dtype)), print_number(value),
                    "a float dtype");
  return filled(dtype, shape, value);
}

Array filled(DType dtype, const Shape& shape, double x) {
  Array a(dtype, shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, x);
  return a;
}

Array Array::wrap(DType dtype, const Shape& shape, std::shared_ptr<void> memory) {
  Array a;
  a.type_ = {dtype, shape};
  a.memory_ = std::move(memory);
  return a;
}

double Array::at(std::int64_t flat_index) const {
  check_index(flat_index);
  return visit_dtype(dtype(),
                     [&](auto t) { return static_cast<double>(static_cast<const decltype(t)*>(raw())[flat_index]); });
}

void Array::set(std::int64_t flat_index, double value) {
  check_index(flat_index);
  visit_dtype(dtype(), [&]<class T>(T) { static_cast<T*>(raw())[flat_index] = converted<T>(value); });
}

Array Array::cast(DType to) const {
  check_defined("cast()");
  Array out(to, shape());
  visit_dtype(dtype(), [&]<class From>(From) {
    const auto* source = static_cast<const From*>(raw());
    visit_dtype(to, [&]<class To>(To) {
      auto* target = static_cast<To*>(out.raw());
      for (std::int64_t i = 0; i < size(); ++i) target[i] = converted<To>(source[i]);
    });
  });
  return out;
}

Array Array::reshaped(const Shape& shape) const {
  check_defined("reshaped()");
  check_num_elements("array", {dtype(), shape});
  if (shape.size() != size())
    throw UserError("array", "a reshape keeps the number of elements", type_.shape.str() + " to " + shape.str(),
                    "a shape of " + std::to_string(size()) + " elements");
  return wrap(dtype(), shape, memory_);
}

Array Array::clone() const {
  check_defined("clone()");
  Array a(dtype(), shape());
  std::memcpy(a.raw(), raw(), bytes());
  return a;
}

std::string Array::str() const {
  if (!defined()) return "undefined";
  std::string s = type_.str() + " {";
  visit_dtype(dtype(), [&]<class T>(T) {
    const T* elements = static_cast<const T*>(raw());
    for (std::int64_t i = 0; i < std::min<std::int64_t>(size(), 8); ++i)
      s += (i ? ", " : "") + print_number(elements[i]);
  });
  return s + (size() > 8 ? ", ...}" : "}");
}

void Array::refuse_undefined(const char* what) {
  throw UserError("array", std::string(what) + " needs an array that is defined", "Array(), which has no memory",
                  "Array(dtype, shape), Array::zeros(dtype, shape) or Array::from(values, shape)");
}

void Array::check_index(std::int64_t flat_index) const {
  check_defined("at() or set()");
  if (flat_index < 0 || flat_index >= size())
    throw UserError("array",
                    "an index must be that of an element of " + type_.str() + ", which has " + std::to_string(size()),
                    std::to_string(flat_index), "at() and set() count all elements, from 0, the last axis fastest");
}

void Array::check_dtype(DType wanted) const {
  if (wanted != dtype())
    throw UserError("array", "data<T>() takes the array's own dtype",
                    "an array of " + std::string(name_of(dtype())) + " read as " + std::string(name_of(wanted)),
                    "cast() first");
}

void Array::copy_in(const void* source, std::size_t n) {
  if (n != bytes())
    throw UserError("array", "the values must fill the shape " + shape().str(),
                    std::to_string(n / size_of(dtype())) + " values", std::to_string(shape().size()) + " values");
  if (n) std::memcpy(raw(), source, n);
}

std::ostream& operator<<(std::ostream& stream, DType dtype) { return stream << name_of(dtype); }
std::ostream& operator<<(std::ostream& stream, const Shape& shape) { return stream << shape.str(); }
std::ostream& operator<<(std::ostream& stream, const ValueType& type) { return stream << type.str(); }
std::ostream& operator<<(std::ostream& stream, const Array& array) { return stream << array.str(); }

}  // namespace hotloop
