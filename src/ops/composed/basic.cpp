// Small compositions: functions of one array, and changes of shape.
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop {

Value zeros_like(Value x) {
  ir::require_defined("zeros_like", {&x, 1});
  return constant(0, x.dtype(), x.shape());
}

Value ones_like(Value x) {
  ir::require_defined("ones_like", {&x, 1});
  return constant(1, x.dtype(), x.shape());
}

Value square(Value x) { return mul(x, x); }
Value reciprocal(Value x) { return 1.0 / x; }
Value rsqrt(Value x) { return 1.0 / sqrt(x); }

Value expand_dims(Value x, int axis) {
  ir::require_defined("expand_dims", {&x, 1});
  const int rank = x.rank() + 1;
  if (axis < -rank || axis >= rank)
    throw UserError("expand_dims", "the axis must be one of the result's " + std::to_string(rank) + " axes",
                    "axis " + std::to_string(axis) + " for " + x.type().str(),
                    "an axis from " + std::to_string(-rank) + " to " + std::to_string(rank - 1));
  return reshape(x, x.shape().with_inserted(axis < 0 ? axis + rank : axis, 1));
}

Value squeeze(Value x, int axis) {
  ir::require_defined("squeeze", {&x, 1});
  const int a = static_cast<int>(ir::checked_axis("squeeze", axis, x.type()));
  if (x.shape()[a] != 1)
    throw UserError("squeeze", "the axis must have extent 1", "axis " + std::to_string(a) + " of " + x.type().str(),
                    "take(), or reshape()");
  return reshape(x, x.shape().without(a));
}

Value narrow(Value x, int axis, std::int64_t start, std::int64_t size) {
  ir::require_defined("narrow", {&x, 1});
  const int a = static_cast<int>(ir::checked_axis("narrow", axis, x.type()));
  if (start < 0 || size < 0 || start + size > x.shape()[a])
    throw UserError("narrow", "start and start + size must lie within the axis",
                    "start " + std::to_string(start) + ", size " + std::to_string(size) + " on axis " +
                        std::to_string(a) + " of " + x.type().str());
  if (start == 0 && size == x.shape()[a]) return x;
  std::vector<std::int64_t> from(static_cast<std::size_t>(x.rank()), 0), to = x.shape().vec();
  from[static_cast<std::size_t>(a)] = start;
  to[static_cast<std::size_t>(a)] = start + size;
  return slice(x, from, to);
}

Value take(Value x, int axis, std::int64_t index) {
  ir::require_defined("take", {&x, 1});
  const int a = static_cast<int>(ir::checked_axis("take", axis, x.type()));
  const std::int64_t extent = x.shape()[a];
  if (index < -extent || index >= extent)
    throw UserError(
        "take", "the index must lie within the axis",
        "index " + std::to_string(index) + " on axis " + std::to_string(a) + " of " + x.type().str(),
        extent == 0 ? "" : "an index from " + std::to_string(-extent) + " to " + std::to_string(extent - 1));
  return squeeze(narrow(x, a, index < 0 ? index + extent : index, 1), a);
}

Value stack(std::span<const Value> parts, int axis) {
  std::vector<Value> expanded;
  for (const Value& part : parts) expanded.push_back(expand_dims(part, axis));
  if (expanded.empty()) throw UserError("stack", "there must be at least one part", "none");
  return concat(expanded, axis);
}

std::vector<Value> split(Value x, int num_parts, int axis) {
  ir::require_defined("split", {&x, 1});
  const int a = static_cast<int>(ir::checked_axis("split", axis, x.type()));
  if (num_parts <= 0 || x.shape()[a] % num_parts != 0)
    throw UserError("split", "the number of parts must divide the extent of the axis",
                    std::to_string(num_parts) + " parts of axis " + std::to_string(a) + " of " + x.type().str(),
                    "narrow() for unequal parts");
  const std::int64_t size = x.shape()[a] / num_parts;
  std::vector<Value> parts;
  for (int i = 0; i < num_parts; ++i) parts.push_back(narrow(x, a, i * size, size));
  return parts;
}

}  // namespace hotloop
