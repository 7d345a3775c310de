#include <cmath>
#include <numbers>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/gaussian.h"

namespace hotloop {

Value ndtr(Value x) { return ir::append_op("ndtr", {x}); }
Value log_ndtr(Value x) { return ir::append_op("log_ndtr", {x}); }

namespace ir {
namespace {

constexpr double root_of_half = std::numbers::sqrt2 / 2;

// In long double the argument of erfc, which counts by its square, is rounded to more digits than are left of it.
double of_normal(double x) {
  return static_cast<double>(erfcl(-static_cast<long double>(x) / std::numbers::sqrt2_v<long double>) / 2);
}

// Where erfc leaves the range of numbers, Laplace's continued fraction.
double log_of_normal(double x) {
  if (x > 0) return std::log1p(-of_normal(-x));
  const long double t = -static_cast<long double>(x);
  if (t < 30) return static_cast<double>(logl(erfcl(t / std::numbers::sqrt2_v<long double>) / 2));
  long double fraction = t;
  for (int i = 40; i > 0; --i) fraction = t + i / fraction;
  return static_cast<double>(-t * t / 2 - logl(fraction * sqrtl(2 * std::numbers::pi_v<long double>)));
}

// exp(-x x / 2) / sqrt(2 pi)
Value density(Value x) { return exp_of_minus_square(x, 0.5) * (root_of_half * std::numbers::inv_sqrtpi); }

// The density over the distribution function, which in the tail has only the scaled complement. At zero the derivative is that of the side above, whole.
Value slope_of_log(Value of) {
  const Value x = cast(of, DType::F64), is_below = less(x, 0.0);
  const Value below = select(is_below, x, zeros_like(x)), above = select(is_below, zeros_like(x), x);
  const Value tail = 2 * root_of_half * std::numbers::inv_sqrtpi / scaled_complement(below * -root_of_half);
  return cast(select(is_below, tail, density(above) / ndtr(above)), of.dtype());
}

}  // namespace

std::vector<OpDef> ops_ndtr() {
  OpDef def = unary_op("ndtr", "the normal distribution function: how likely a standard normal number is less than x",
                       ScalarOp::Ndtr, Accepts::Floats, 40);
  def.eval = eval_math(of_normal);
  def.jvp = scaled_tangent([](const JvpContext& c) { return density(c.primals[0]); });
  OpDef log_def = unary_op("log_ndtr", "log(ndtr(x)), also where ndtr(x) is too small to be a number",
                           ScalarOp::LogNdtr, Accepts::Floats, 60);
  log_def.eval = eval_math(log_of_normal);
  log_def.jvp = scaled_tangent([](const JvpContext& c) { return slope_of_log(c.primals[0]); });
  return {def, log_def};
}

}  // namespace ir
}  // namespace hotloop
