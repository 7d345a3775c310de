#include <cmath>
#include <limits>
#include <numbers>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value erfinv(Value x) { return ir::append_op("erfinv", {x}); }

namespace ir {
namespace {

// Halley's method on erf, on erfc where 1 - |x| says more, from an estimate good to 0.002 (Winitzki 2008).
double inverse_of_erf(double x) {
  if (x == 0 || std::isnan(x)) return x;
  if (std::fabs(x) >= 1)
    return std::fabs(x) == 1 ? std::copysign(std::numeric_limits<double>::infinity(), x)
                             : std::numeric_limits<double>::quiet_NaN();
  const auto of = std::fabs(static_cast<long double>(x));
  const bool is_far = of > 0.5L;
  const long double w = log1pl(-of * of), a = 0.147L;
  const long double half = 2 / (std::numbers::pi_v<long double> * a) + w / 2;
  long double y = is_far ? sqrtl(sqrtl(half * half - w / a) - half) : of / std::numbers::inv_sqrtpi_v<long double> / 2;
  for (int i = 0; i < 5; ++i) {
    const long double error = is_far ? (1 - of) - erfcl(y) : erfl(y) - of;
    const long double step = error / (2 * std::numbers::inv_sqrtpi_v<long double> * expl(-y * y));
    y -= step / (1 + y * step);
  }
  return std::copysign(static_cast<double>(y), x);
}

}  // namespace

std::vector<OpDef> ops_erfinv() {
  OpDef def = unary_op("erfinv", "inverse of the error function: infinite at 1 and -1, NaN beyond", ScalarOp::ErfInv,
                       Accepts::Floats, 40);
  def.eval = eval_math(inverse_of_erf);
  // 1 / erf'(y)
  def.jvp = scaled_tangent(
      [](const JvpContext& c) { return exp(c.outputs[0] * c.outputs[0]) * (0.5 / std::numbers::inv_sqrtpi); });
  def.samples = [](Rng& rng, DType dtype) { return uniform_samples(rng, dtype, 1, -0.8, 0.8); };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
