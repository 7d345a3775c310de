// Reductions composed of the primitives, and softmax.
#include <limits>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/composed/log_softmax.h"
#include "ops/rules/arguments.h"

namespace hotloop {
namespace {

// x reduced along `axes`, back on the shape of x.
Value repeated(Value reduced, const Shape& shape, const std::vector<std::int64_t>& axes) {
  return broadcast(reduced, shape, ir::other_axes(shape.rank(), axes));
}

// What is taken from x before exponentials. An infinite largest element would give inf - inf; the shift is arbitrary, so its derivative is none.
Value shift_of(Value largest) {
  const Value finite = less(abs(largest), like(largest, std::numeric_limits<double>::infinity()));
  return stop_gradient(select(finite, largest, like(largest, 0)));
}

}  // namespace

Value sum(Value x) {
  ir::require_defined("sum", {&x, 1});
  return reduce_sum(x, ir::iota_axes(x.rank()));
}

Value mean(Value x, const std::vector<std::int64_t>& axes) {
  ir::require_defined("mean", {&x, 1});
  if (!is_float(x.dtype()))
    throw UserError("mean", "the operand must be f32 or f64", x.type().str(), "cast(x, DType::F32)");
  const auto checked = ir::checked_axes("mean", axes, x.type());
  if (checked.empty()) return x;
  Value count = extent(x, static_cast<int>(checked[0]));
  for (std::size_t i = 1; i < checked.size(); ++i) count = count * extent(x, static_cast<int>(checked[i]));
  return reduce_sum(x, checked) / count;
}

Value mean(Value x) {
  ir::require_defined("mean", {&x, 1});
  return mean(x, ir::iota_axes(x.rank()));
}

Value variance(Value x, const std::vector<std::int64_t>& axes) {
  ir::require_defined("variance", {&x, 1});
  const auto checked = ir::checked_axes("variance", axes, x.type());
  // Two passes: the one-pass formula cancels.
  return mean(square(x - repeated(mean(x, checked), x.shape(), checked)), checked);
}

Value logsumexp(Value x, int axis) {
  ir::require_defined("logsumexp", {&x, 1});
  const std::vector<std::int64_t> axes = {ir::checked_axis("logsumexp", axis, x.type())};
  const Value largest = reduce_max(x, axes);
  const Value sum = reduce_sum(exp(x - repeated(shift_of(largest), x.shape(), axes)), axes);
  // Where all are -inf, so is the largest; log(0) would give the same, with derivatives that are none.
  return log(select(equal(sum, like(sum, 0)), like(sum, 1), sum)) + stop_gradient(largest);
}

Value log_softmax(Value x, int axis) {
  ir::require_defined("log_softmax", {&x, 1});
  const std::vector<std::int64_t> axes = {ir::checked_axis("log_softmax", axis, x.type())};
  const Value largest = reduce_max(x, axes), shift = shift_of(largest);
  const Value below = x - repeated(shift, x.shape(), axes);
  // The logarithm of 1 and the other weights: a sum of all of them would round off what small ones add to 1. So each of the largest, of which there
  // may be several, is 1 less, and all but one of these are counted.
  const Value is_largest = cast(equal(below, zeros_like(below)), x.dtype());
  const Value others = reduce_sum(exp(below) - is_largest, axes) + (reduce_sum(is_largest, axes) - 1.0);
  // Where all are -inf no weight is left.
  const Value log_sum = log1p(select(equal(others, like(x, -1)), like(x, 0), others));
  return below - repeated(log_sum + stop_gradient(largest - shift), x.shape(), axes);
}

Value softmax(Value x, int axis) {
  ir::require_defined("softmax", {&x, 1});
  const std::vector<std::int64_t> axes = {ir::checked_axis("softmax", axis, x.type())};
  const Value weights = exp(x - repeated(stop_gradient(reduce_max(x, axes)), x.shape(), axes));
  return weights / repeated(reduce_sum(weights, axes), x.shape(), axes);
}

}  // namespace hotloop
