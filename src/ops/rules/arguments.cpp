#include "ops/rules/arguments.h"

#include <algorithm>
#include <numeric>

#include "hotloop/error.h"
#include "hotloop/ops.h"

namespace hotloop::ir {

std::string types_text(std::span<const ValueType> types) {
  std::string s;
  for (const ValueType& t : types) s += (s.empty() ? "" : ", ") + t.str();
  return s.empty() ? "nothing" : s;
}

std::string types_text(std::span<const Value> values) {
  std::string s;
  for (const Value& v : values)
    s += (s.empty() ? "" : ", ") + (v.defined() ? v.type().str() : std::string("an undefined value"));
  return s.empty() ? "nothing" : s;
}

void require_defined(std::string_view where, std::span<const Value> values) {
  if (!std::ranges::all_of(values, [](const Value& v) { return v.defined(); }))
    throw UserError(std::string(where), "every operand must be a value", types_text(values));
}

Value append_op(std::string_view op_name, std::vector<Value> operands, Attrs attrs) {
  require_defined(op_name, operands);
  return current_graph().append(op(op_name), std::move(operands), std::move(attrs))->result();
}

std::int64_t checked_axis(std::string_view where, std::int64_t axis, const ValueType& type) {
  const int rank = type.shape.rank();
  if (axis < -rank || axis >= rank)
    throw UserError(std::string(where), "the axis must be one of the operand's " + std::to_string(rank) + " axes",
                    "axis " + std::to_string(axis) + " of " + type.str(),
                    rank == 0 ? "an operand with axes"
                              : "an axis from " + std::to_string(-rank) + " to " + std::to_string(rank - 1));
  return axis < 0 ? axis + rank : axis;
}

std::vector<std::int64_t> checked_axes(std::string_view where, std::span<const std::int64_t> axes,
                                       const ValueType& type) {
  std::vector<std::int64_t> result;
  for (std::int64_t axis : axes) result.push_back(checked_axis(where, axis, type));
  std::ranges::sort(result);
  const auto twice = std::ranges::adjacent_find(result);
  if (twice != result.end())
    throw UserError(std::string(where), "each axis must be named once",
                    "axis " + std::to_string(*twice) + " of " + type.str() + " twice");
  return result;
}

void require_one_an_axis(std::string_view where, std::string_view what, std::size_t count, const ValueType& type) {
  if (count != static_cast<std::size_t>(type.shape.rank()))
    throw UserError(std::string(where), std::string(what) + " must have one number for each axis",
                    std::to_string(count) + " numbers for " + type.str());
}

std::vector<Value> broadcast_together(std::string_view where, std::span<const Value> values) {
  require_defined(where, values);
  int rank = 0;
  for (const Value& v : values) rank = std::max(rank, v.rank());
  std::vector<std::int64_t> dims(static_cast<std::size_t>(rank), 1);
  for (const Value& v : values) {
    for (int i = 0; i < v.rank(); ++i) {
      std::int64_t& d = dims[static_cast<std::size_t>(rank - v.rank() + i)];
      const std::int64_t extent = v.shape()[i];
      if (d == 1)
        d = extent;
      else if (extent != 1 && extent != d)
        throw UserError(std::string(where), "shapes must broadcast: from the last axis on, extents are equal or 1",
                        types_text(values), "reshape() or expand_dims() an operand");
    }
  }
  const Shape shape(dims);
  std::vector<Value> result;
  for (const Value& v : values) result.push_back(broadcast_to(v, shape));
  return result;
}

Value add_or_either(Value a, Value b) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  return add(a, b);
}

Value zeros_of(const ValueType& type) { return constant(0.0, type.dtype, type.shape); }

std::vector<std::int64_t> iota_axes(int n) {
  std::vector<std::int64_t> axes(static_cast<std::size_t>(n));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

Value move_axis(Value x, int from, int to) {
  if (from == to) return x;
  std::vector<std::int64_t> order = iota_axes(x.rank());
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return transpose(x, order);
}

std::vector<std::int64_t> other_axes(int rank, std::span<const std::int64_t> axes) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < rank; ++i)
    if (std::ranges::find(axes, i) == axes.end()) result.push_back(i);
  return result;
}

}  // namespace hotloop::ir
