#include "ode/norm.h"

#include <limits>

#include "core/print_number.h"
#include "core/resolution.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"

namespace hotloop::ode {

Value rms(const Leaves& leaves, DType dtype) {
  Value total;
  std::int64_t size = 0;
  for (const Value& leaf : leaves) {
    const Value squares = cast(sum(square(leaf)), dtype);
    total = total.defined() ? total + squares : squares;
    size += leaf.shape().size();
  }
  return total.defined() ? sqrt(total / static_cast<double>(std::max<std::int64_t>(size, 1))) : constant(0, dtype);
}

Leaves error_sizes(const Leaves& magnitudes, const Tolerance& rtol, const Tolerance& atol) {
  Leaves sizes;
  for (std::size_t i = 0; i < magnitudes.size(); ++i) {
    const Value y = magnitudes[i];
    const double least = y.dtype() == DType::F64 ? std::numeric_limits<double>::min()
                                                 : static_cast<double>(std::numeric_limits<float>::min());
    sizes.push_back(maximum(atol.of(i, y), least) + rtol.of(i, y) * y);
  }
  return sizes;
}

Leaves magnitudes(const Leaves& y) {
  Leaves sizes;
  for (const Value& leaf : y) sizes.push_back(abs(leaf));
  return sizes;
}

Value scaled_norm(const Leaves& error, const Leaves& sizes, DType dtype) {
  Leaves scaled;
  for (std::size_t i = 0; i < error.size(); ++i) scaled.push_back(error[i] / sizes[i]);
  return rms(scaled, dtype);
}

Value initial_step(const VectorField& field, Value t0, const Leaves& y0, int error_order, const Tolerance& rtol,
                   const Tolerance& atol) {
  const DType dtype = field.time_dtype();
  const Leaves sizes = error_sizes(magnitudes(y0), rtol, atol);
  const auto norm = [&](const Leaves& x) { return scaled_norm(x, sizes, dtype); };
  const auto number = [&](double x) { return constant(x, dtype); };
  const Leaves f0 = field(t0, y0);
  const Value d0 = norm(y0), d1 = norm(f0);
  const Value tiny = bit_or(less(d0, number(1e-5)), less(d1, number(1e-5)));
  // No step is shorter than time resolves at t0.
  const Value least = (16 * resolution(dtype)) * abs(t0);
  const Value h0 = maximum(select(tiny, number(1e-6), 0.01 * (d0 / select(tiny, number(1), d1))), least);
  Leaves y1, change;
  for (std::size_t i = 0; i < y0.size(); ++i) y1.push_back(y0[i] + cast(h0, y0[i].dtype()) * f0[i]);
  const Leaves f1 = field(t0 + h0, y1);
  for (std::size_t i = 0; i < y0.size(); ++i) change.push_back(f1[i] - f0[i]);
  const Value steepest = maximum(d1, norm(change) / h0);
  const Value h1 = select(less_equal(steepest, number(1e-15)), maximum(number(1e-6), h0 * 1e-3),
                          pow(0.01 / steepest, number(1.0 / error_order)));
  // Where the trial step left what the field is defined on, or the field is infinite or NaN at once, the controller finds out by shorter steps.
  const Value step = minimum(100.0 * h0, h1), shorter = select(greater(h0, number(0)), h0 * 1e-3, number(1e-6));
  return stop_gradient(maximum(select(greater(step, number(0)), step, shorter), least));
}

Leaves StepSizeRule::tolerance(const Leaves& y) const {
  Leaves sizes;
  for (const Value& leaf : y) sizes.push_back(1e-6 * (1.0 + abs(leaf)));
  return sizes;
}

Value Tolerance::of(std::size_t i, Value like) const {
  if (value_.defined()) return value_.dtype() == like.dtype() ? value_ : cast(value_, like.dtype());
  if (!leaves_) return constant(number_, like.dtype());
  return constant(leaves_->flatten()[i].cast(like.dtype()));
}

void Tolerance::check(const std::string& name, const Tree<Value>& state) const {
  if (value_.defined()) {
    if (value_.rank() != 0 || !is_float(value_.dtype()))
      throw UserError("ode.PID", name + " must be a number, a float scalar or a tree like the state",
                      value_.type().str());
    return;
  }
  if (!leaves_) {
    if (!(number_ >= 0)) throw UserError("ode.PID", name + " must not be negative", print_number(number_));
    return;
  }
  if (leaves_->names() != state.names())
    throw UserError(
        "ode.PID", name + " must be a number or a tree like the state",
        std::to_string(leaves_->num_leaves()) + " leaves, and " + std::to_string(state.num_leaves()) + " in the state");
  const auto leaves = leaves_->flatten();
  const auto values = state.flatten();
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Shape &a = leaves[i].shape(), &b = values[i].shape();
    bool fits = a.rank() <= b.rank();
    for (int k = 1; fits && k <= a.rank(); ++k) fits = a[a.rank() - k] == 1 || a[a.rank() - k] == b[b.rank() - k];
    if (!fits)
      throw UserError("ode.PID", name + " must broadcast against the state",
                      leaves[i].type().str() + " for " + values[i].type().str());
  }
}

}  // namespace hotloop::ode
