// What the functions of structures (functions.h) ask of lists of values.
#include "hotloop/functions.h"

#include "hotloop/error.h"

namespace hotloop::detail {

std::vector<Value> defined_tangents(std::span<const Value> primals, std::span<const Value> tangents) {
  if (primals.size() != tangents.size()) wrong_leaf_count(primals.size(), tangents.size());
  std::vector<Value> result(tangents.begin(), tangents.end());
  for (std::size_t i = 0; i < result.size(); ++i)
    if (!is_float(primals[i].dtype())) result[i] = {};
  return result;
}

std::vector<Value> zeros_where_undefined(std::vector<Value> values, std::span<const Value> like) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!values[i].defined()) values[i] = zeros_like(like[i]);
  return values;
}

std::vector<int> axes_of_leaves(std::span<const int> in_axes, std::span<const std::size_t> num_leaves) {
  if (!in_axes.empty() && in_axes.size() != num_leaves.size())
    throw UserError(
        "vmap",
        "in_axes must have one axis (-1: not batched) for each of " + std::to_string(num_leaves.size()) + " arguments",
        std::to_string(in_axes.size()), "leave in_axes out to batch every argument along axis 0");
  std::vector<int> axes;
  for (std::size_t i = 0; i < num_leaves.size(); ++i)
    axes.insert(axes.end(), num_leaves[i], in_axes.empty() ? 0 : in_axes[i]);
  return axes;
}

}  // namespace hotloop::detail
