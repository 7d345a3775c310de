// Logarithm of the gamma function and its derivative.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), pi = std::numbers::pi;
constexpr int shifts = 10;  // from here on the asymptotic series are exact to f64's last place

Value checked(const char* where, Value x) {
  ir::require_defined(where, {&x, 1});
  if (!is_float(x.dtype()))
    throw UserError(where, "the operand must be f32 or f64", x.type().str(), "cast(x, DType::F32)");
  // The zeros of both lie between terms that cancel: f32 is computed in f64, which has digits to spare.
  return cast(x, DType::F64);
}

// Where x < 1/2, 1 - x, of which the function says that of x (reflection).
struct Reflected {
  Value is_low, at;
  Value
      rest;  // pi (x - n) for the nearest integer n: its sine is that of pi x but for its sign; 1 elsewhere, where no derivative may be infinite
};
Reflected reflected(Value x) {
  const Value is_low = less(x, like(x, 0.5));
  return {is_low, select(is_low, 1.0 - x, x), select(is_low, pi * (x - stop_gradient(rint(x))), like(x, 1))};
}

// Whether the recurrence takes step i: x + i is still small.
Value takes_step(Value x, int i) { return less(x, like(x, shifts - i)); }
Value shifted(Value x) {
  Value count = like(x, 0);
  for (int i = 0; i < shifts; ++i) count = count + select(takes_step(x, i), like(x, 1), like(x, 0));
  return x + count;
}

Value polynomial(Value x, const auto& coefficients) {
  Value sum = like(x, coefficients.back());
  for (std::size_t i = coefficients.size() - 1; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

}  // namespace

Value lgamma(Value operand) {
  const Value x = checked("lgamma", operand);
  const Reflected r = reflected(x);
  // Gamma(z) of the shifted z is Gamma(x) times the numbers on the way.
  Value product = like(x, 1);
  for (int i = 0; i < shifts; ++i)
    product = product * select(takes_step(r.at, i), r.at + static_cast<double>(i), like(x, 1));
  const Value z = shifted(r.at), w = 1.0 / z;
  // Stirling's series: B(2k) / (2k (2k - 1)).
  constexpr std::array series{1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156};
  const Value above =
      (z - 0.5) * (log(z) - 1.0) + (0.5 * std::log(2 * pi) - 0.5) + w * polynomial(square(w), series) - log(product);
  const Value below = std::log(pi) - log(abs(sin(r.rest))) - above;
  const Value is_infinite = equal(abs(x), like(x, infinity));
  return cast(select(is_infinite, like(x, infinity), select(r.is_low, below, above)), operand.dtype());
}

Value digamma(Value operand) {
  const Value x = checked("digamma", operand);
  const Reflected r = reflected(x);
  Value sum = like(x, 0);
  for (int i = 0; i < shifts; ++i)
    sum = sum + select(takes_step(r.at, i), 1.0 / (r.at + static_cast<double>(i)), like(x, 0));
  const Value z = shifted(r.at), w = 1.0 / z;
  // B(2k) / (2k).
  constexpr std::array series{1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12};
  const Value above = log(z) - 0.5 * w - square(w) * polynomial(square(w), series) - sum;
  const Value is_pole = bit_and(less(x, 0.0), equal(r.rest, 0.0));
  const Value below = above - pi * (cos(r.rest) / sin(r.rest));
  return cast(select(is_pole, like(x, std::numeric_limits<double>::quiet_NaN()), select(r.is_low, below, above)),
              operand.dtype());
}

}  // namespace hotloop
