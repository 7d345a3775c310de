// Element types, shapes, and Array: dense row-major host memory with shared ownership.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hotloop {

enum class DType : std::uint8_t { Bool, I32, U32, I64, F32, F64 };

std::size_t size_of(DType dtype);              // bytes of one element; Bool takes one byte, 0 or 1
std::string_view name_of(DType dtype);         // "bool", "i32", "u32", "i64", "f32", "f64"
DType dtype_from_name(std::string_view name);  // UserError for an unknown name
constexpr bool is_float(DType d) { return d == DType::F32 || d == DType::F64; }
constexpr bool is_integer(DType d) { return d == DType::I32 || d == DType::U32 || d == DType::I64; }

template <class T> inline constexpr bool always_false = false;
template <class T> constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::uint8_t>)
    return DType::Bool;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::I32;
  else if constexpr (std::is_same_v<T, std::uint32_t>)
    return DType::U32;
  else if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, long long>)
    return DType::I64;
  else if constexpr (std::is_same_v<T, float>)
    return DType::F32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::F64;
  else
    static_assert(always_false<T>, "no DType for this C++ type");
}

// Calls f with a value of the C++ type that stores `dtype`: uint8_t, int32_t, uint32_t, int64_t, float or double.
template <class F> decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::Bool: return f(std::uint8_t{});
    case DType::I32: return f(std::int32_t{});
    case DType::U32: return f(std::uint32_t{});
    case DType::I64: return f(std::int64_t{});
    case DType::F32: return f(float{});
    case DType::F64: break;
  }
  return f(double{});
}

// Extents of an array, outermost first. At most `max_rank` axes, so that a shape never allocates.
class Shape {
 public:
  static constexpr int max_rank = 12;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);
  explicit Shape(const std::vector<std::int64_t>& dims) : Shape(std::span(dims)) {}

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  std::int64_t& operator[](int axis) { return dims_[static_cast<std::size_t>(axis)]; }
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  std::vector<std::int64_t> vec() const { return {dims().begin(), dims().end()}; }
  std::int64_t size() const;  // number of elements; 1 for a scalar
  bool operator==(const Shape& other) const;

  Shape with_inserted(int axis, std::int64_t extent) const;
  Shape without(int axis) const;
  void push_back(std::int64_t extent);
  std::string str() const;  // "(2, 3)", "()" for a scalar

 private:
  std::array<std::int64_t, max_rank> dims_{};
  std::int32_t rank_ = 0;
};
static_assert(sizeof(Shape) == 104);

// Type of a value in a graph: dtype and static shape.
struct ValueType {
  DType dtype = DType::F32;
  Shape shape;
  bool operator==(const ValueType&) const = default;
  std::string str() const;  // "f32[2,3]", "f32[]" for a scalar
  std::size_t bytes() const { return static_cast<std::size_t>(shape.size()) * size_of(dtype); }
};

// Dense row-major memory, 64-byte aligned. Copying an Array shares the memory; nothing in the library writes to
// memory that more than one owner can see: an input that is donated (Executable::run_donating) must have one.
class Array {
 public:
  Array() = default;
  Array(DType dtype, const Shape& shape);  // uninitialised
  static Array zeros(DType dtype, const Shape& shape);
  // UserError if the dtype has no such number: a fraction, NaN or 1e30 among integers.
  static Array full(DType dtype, const Shape& shape, double value);
  // `memory` stays owned by the given pointer and must hold shape.size() elements, aligned for the dtype.
  static Array wrap(DType dtype, const Shape& shape, std::shared_ptr<void> memory);
  template <class T> static Array from(const std::vector<T>& values, const Shape& shape) {
    if constexpr (std::is_same_v<T, bool>)  // packed: not an array of bool
      return from(std::vector<std::uint8_t>(values.begin(), values.end()), shape);
    else
      return from(std::span(values), shape);
  }
  template <class T, std::size_t N> static Array from(std::span<T, N> values, const Shape& shape) {
    Array a(dtype_of<std::remove_cv_t<T>>(), shape);
    a.copy_in(values.data(), values.size_bytes());
    return a;
  }
  template <class T, std::size_t N> static Array from(const std::array<T, N>& values, const Shape& shape) {
    return from(std::span(values), shape);
  }
  template <class T> static Array from(std::initializer_list<T> values, const Shape& shape) {
    return from(std::vector<T>(values), shape);
  }
  template <class T> static Array scalar(T value) { return from(std::span<const T, 1>(&value, 1), Shape{}); }

  DType dtype() const { return type_.dtype; }
  const Shape& shape() const { return type_.shape; }
  const ValueType& type() const { return type_; }
  std::int64_t size() const { return type_.shape.size(); }
  std::size_t bytes() const { return type().bytes(); }
  bool defined() const { return memory_ != nullptr; }

  void* raw() { return memory_.get(); }
  const void* raw() const { return memory_.get(); }
  const std::shared_ptr<void>& memory() const { return memory_; }
  template <class T> std::span<T> data() {
    check_dtype(dtype_of<T>());
    return {static_cast<T*>(raw()), static_cast<std::size_t>(size())};
  }
  template <class T> std::span<const T> data() const {
    check_dtype(dtype_of<T>());
    return {static_cast<const T*>(raw()), static_cast<std::size_t>(size())};
  }
  // Element as a double, whatever the dtype, and back. UserError for an index outside 0..size()-1. These, cast(), reshaped() and clone() need
  // a defined array.
  double at(std::int64_t flat_index) const;
  void set(std::int64_t flat_index, double value);  // converts to the dtype
  Array cast(DType dtype) const;
  Array reshaped(const Shape& shape) const;  // shares the memory
  Array clone() const;
  std::string str() const;  // type and the first few elements, each as the shortest text that reads back; "undefined"

 private:
  void check_defined(const char* what) const {
    if (memory_ == nullptr) refuse_undefined(what);
  }
  [[noreturn]] static void refuse_undefined(const char* what);
  void check_index(std::int64_t flat_index) const;
  void check_dtype(DType wanted) const;
  void copy_in(const void* source, std::size_t bytes);

  ValueType type_;
  std::shared_ptr<void> memory_;
};

// What str() gives, and name_of() of a dtype.
std::ostream& operator<<(std::ostream& stream, DType dtype);
std::ostream& operator<<(std::ostream& stream, const Shape& shape);
std::ostream& operator<<(std::ostream& stream, const ValueType& type);
std::ostream& operator<<(std::ostream& stream, const Array& array);

}  // namespace hotloop
