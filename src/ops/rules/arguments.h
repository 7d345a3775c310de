// Checks and conversions of arguments that front-end functions and shape rules share.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotloop/graph.h"
#include "ir/op_def.h"

namespace hotloop::ir {

// "f32[2,3], f32[4]"
std::string types_text(std::span<const ValueType> types);
std::string types_text(std::span<const Value> values);

// Throws UserError unless every value is defined.
void require_defined(std::string_view where, std::span<const Value> values);

// The one result of a new node of the current graph.
Value append_op(std::string_view op_name, std::vector<Value> operands, Attrs attrs = {});

// Axis in [0, rank); a negative one counts from the end. UserError if it is out of range.
std::int64_t checked_axis(std::string_view where, std::int64_t axis, const ValueType& type);
// The same for a set of axes, sorted; UserError for an axis named twice.
std::vector<std::int64_t> checked_axes(std::string_view where, std::span<const std::int64_t> axes,
                                       const ValueType& type);
// UserError unless there is one number an axis.
void require_one_an_axis(std::string_view where, std::string_view what, std::size_t count, const ValueType& type);

// The values broadcast to their common shape by NumPy's rule. UserError names `where` and every shape.
std::vector<Value> broadcast_together(std::string_view where, std::span<const Value> values);

// For tangents and cotangents, where undefined means zero.
Value add_or_either(Value a, Value b);
Value zeros_of(const ValueType& type);
inline Value or_zeros(Value v, const ValueType& type) { return v.defined() ? v : zeros_of(type); }

// 0, 1, ..., n-1
std::vector<std::int64_t> iota_axes(int n);
// The axis `from` of x becomes the axis `to` of the result.
Value move_axis(Value x, int from, int to);
// Every number of [0, rank) that is not in `axes`, in order.
std::vector<std::int64_t> other_axes(int rank, std::span<const std::int64_t> axes);

}  // namespace hotloop::ir
