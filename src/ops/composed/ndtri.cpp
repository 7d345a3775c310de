// The inverse of the normal distribution function.
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/gaussian.h"

namespace hotloop {
namespace {

constexpr double sqrt2 = std::numbers::sqrt2, root_of_pi = 1.772453850905516;
constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

// The distance from 0 beyond which a normal number lies with probability q < 1/4, to each side: Halley's method on the logarithm of that probability, which
// is nearly a parabola, from an estimate within 0.2 % (Winitzki, A handy approximation for the error function and its inverse, 2008).
Value distance_of_tail(Value q) {
  constexpr double a = 0.147;
  const Value log_q = log(q), w = log_q + log(4.0 - 4.0 * q), half = 2 / (std::numbers::pi * a) + 0.5 * w;
  Value z = sqrt(2.0 * (sqrt(half * half - w * (1 / a)) - half));
  for (int i = 0; i < 2; ++i) {
    const Value tail = ir::scaled_complement(z * (1 / sqrt2));
    const Value slope = (sqrt2 / root_of_pi) / tail;  // of -log: the density over the probability
    const Value newton = (log(0.5 * tail) - 0.5 * z * z - log_q) / slope;
    z = z + newton / (1.0 + 0.5 * newton * (slope - z));
  }
  return z;
}

Value inverse_of_normal(Value p) {
  const Value is_above = greater(p, like(p, 0.5)), q = select(is_above, 1.0 - p, p);
  const Value is_central = greater_equal(q, like(q, 0.25));
  const Value center = sqrt2 * erfinv(select(is_central, 2.0 * p - 1.0, zeros_like(p)));  // whose argument is exact
  const Value is_inside = bit_and(greater(q, like(q, 0.0)), less(q, 0.25));
  const Value tail = distance_of_tail(select(is_inside, q, like(q, 0.125)));
  const Value far = select(is_inside, tail, select(equal(q, zeros_like(q)), like(q, infinity), like(q, nan)));
  return select(is_central, center, select(is_above, far, -far));
}

}  // namespace

// f32 is computed in f64.
Value ndtri(Value p) {
  ir::require_defined("ndtri", {&p, 1});
  if (!is_float(p.dtype()))
    throw UserError("ndtri", "the operand must be f32 or f64", p.type().str(), "cast(x, DType::F32)");
  const std::vector<Value> at = {cast(p, DType::F64)};
  const auto body = trace([](std::span<const Value> v) { return std::vector<Value>{inverse_of_normal(v[0])}; },
                          std::vector<ValueType>{at[0].type()}, "ndtri");
  const auto rule = [](std::span<const Value> v) {
    const Value y = ndtri(v[0]), one_over_density = (sqrt2 * root_of_pi) * exp(0.5 * y * y);
    return std::vector<Value>{y, one_over_density * v[1]};
  };
  return cast(call_with_rule(body, at, "ndtri", rule)[0], p.dtype());
}

}  // namespace hotloop
