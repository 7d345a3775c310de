// The error function's complement, and the normal distribution function in terms of it.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop {
namespace {

constexpr double sqrt2 = std::numbers::sqrt2, root_of_pi = 1.772453850905516;
constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

Value checked(const char* where, Value x) {
  ir::require_defined(where, {&x, 1});
  if (!is_float(x.dtype()))
    throw UserError(where, "the operand must be f32 or f64", x.type().str(), "cast(x, DType::F32)");
  return cast(x, DType::F64);  // f32 is computed in f64, as exp(-x x) would double errors of x x
}

// exp(x x) erfc(x) of x >= 0. As Shepherd and Laframboise (Chebyshev approximation of (1 + 2 x) exp(x x) erfc(x) in 0 <= x < infinity, Mathematics of
// Computation 36, 1981) map the half line: t = (x - 3.75) / (x + 3.75), a polynomial of degree 23. Its coefficients were computed with 60 digits;
// errors are below 4e-16.
Value scaled_complement(Value x) {
  constexpr std::array coefficients{
      1.2375126308378275,     -0.14024059858554697,   0.0035854154854790257,   0.0822767384901452,
      -0.10880393014244462,   0.09230432116037748,    -0.05869339857664934,    0.028362277418956406,
      -0.009746579683265262,  0.0017556258528952954,  0.000293714378044958,    -0.0002901540805408417,
      5.164652974177416e-05,  2.238423915508223e-05,  -1.1438048033346894e-05, -9.73559896736775e-07,
      1.7419821586224816e-06, -5.721823060322409e-08, -2.4857126248016745e-07, 2.3263508708859127e-08,
      3.197926671666804e-08,  -3.74421008096202e-09,  -2.623107347133476e-09,  3.111433380979928e-10};
  const Value t = 1.0 - 7.5 / (x + 3.75);
  Value sum = like(x, coefficients.back());
  for (std::size_t i = coefficients.size() - 1; i-- > 0;) sum = sum * t + coefficients[i];
  return sum / (1.0 + 2.0 * x);
}

// exp(-x x) of x >= 0: the square of x's first digits is exact, and the rest is small.
Value exp_of_minus_square(Value x) {
  const Value near = minimum(x, like(x, 40)), head = cast(cast(near, DType::F32), DType::F64);
  return exp(-head * head) * exp(-(near - head) * (near + head));
}

Value complement(Value x) {
  const Value size = abs(x), tail = exp_of_minus_square(size) * scaled_complement(size);
  return select(less(size, 0.5), 1.0 - erf(x), select(less(x, 0.0), 2.0 - tail, tail));
}

// `slope`: the derivative at x, of the value there.
Value with_slope(const char* name, Value operand, Value (*of)(Value), Value (*slope)(Value)) {
  const Value x = checked(name, operand);
  const std::vector<Value> at = {x};
  const auto body = trace([of](std::span<const Value> v) { return std::vector<Value>{of(v[0])}; },
                          std::vector<ValueType>{x.type()}, name);
  const auto rule = [name, of, slope](std::span<const Value> v) {
    return std::vector<Value>{with_slope(name, v[0], of, slope), slope(v[0]) * v[1]};
  };
  return cast(call_with_rule(body, at, name, rule)[0], operand.dtype());
}

// x on its side of zero, else zero: the derivative at zero is that of the side above, whole.
Value negative_part(Value x) { return select(less(x, 0.0), x, zeros_like(x)); }
Value positive_part(Value x) { return select(less(x, 0.0), zeros_like(x), x); }

Value log_of_normal(Value x) {
  const Value below = negative_part(x), z = abs(below) * (1 / sqrt2);
  const Value tail = log(0.5 * scaled_complement(z)) - 0.5 * below * below;
  return select(less(x, 0.0), tail, log1p(-0.5 * complement(positive_part(x) * (1 / sqrt2))));
}

// The density over the distribution function, which in the tail has only the scaled complement.
Value slope_of_log(Value x) {
  const Value z = abs(negative_part(x)) * (1 / sqrt2), above = positive_part(x);
  const Value tail = (sqrt2 / root_of_pi) / scaled_complement(z);
  const Value density = exp(-0.5 * above * above) * (1 / (sqrt2 * root_of_pi));
  return select(less(x, 0.0), tail, density / ndtr(above));
}

// The distance from 0 beyond which a normal number lies with probability q < 1/4, to each side: Halley's method on the logarithm of that probability, which
// is nearly a parabola, from an estimate within 0.2 % (Winitzki, A handy approximation for the error function and its inverse, 2008).
Value distance_of_tail(Value q) {
  constexpr double a = 0.147;
  const Value log_q = log(q), w = log_q + log(4.0 - 4.0 * q), half = 2 / (std::numbers::pi * a) + 0.5 * w;
  Value z = sqrt(2.0 * (sqrt(half * half - w * (1 / a)) - half));
  for (int i = 0; i < 2; ++i) {
    const Value tail = scaled_complement(z * (1 / sqrt2));
    const Value slope = (sqrt2 / root_of_pi) / tail;  // of -log: the density over the probability
    const Value newton = (log(0.5 * tail) - 0.5 * z * z - log_q) / slope;
    z = z + newton / (1.0 + 0.5 * newton * (slope - z));
  }
  return z;
}

Value inverse_of_normal(Value p) {
  const Value is_above = greater(p, like(p, 0.5)), q = select(is_above, 1.0 - p, p);
  const Value is_central = bit_or(greater(q, like(q, 0.25)), equal(q, like(q, 0.25)));
  const Value center = sqrt2 * erfinv(select(is_central, 2.0 * p - 1.0, zeros_like(p)));  // whose argument is exact
  const Value is_inside = bit_and(greater(q, like(q, 0.0)), less(q, 0.25));
  const Value tail = distance_of_tail(select(is_inside, q, like(q, 0.125)));
  const Value far = select(is_inside, tail, select(equal(q, zeros_like(q)), like(q, infinity), like(q, nan)));
  return select(is_central, center, select(is_above, far, -far));
}

}  // namespace

Value erfc(Value x) {
  return with_slope("erfc", x, complement, [](Value at) { return (-2 / root_of_pi) * exp_of_minus_square(abs(at)); });
}

Value ndtr(Value x) { return cast(0.5 * erfc(checked("ndtr", x) * (-1 / sqrt2)), x.dtype()); }

Value log_ndtr(Value x) { return with_slope("log_ndtr", x, log_of_normal, slope_of_log); }

Value ndtri(Value p) {
  return with_slope("ndtri", p, inverse_of_normal, [](Value at) {
    const Value y = ndtri(at);
    return (sqrt2 * root_of_pi) * exp(0.5 * y * y);  // one over the density
  });
}

}  // namespace hotloop
