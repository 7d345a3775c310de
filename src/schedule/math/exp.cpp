// exp and sigmoid. Coefficients: scripts/fit_math.py.
#include "schedule/math/expand.h"
#include "schedule/math/units.h"

namespace hotloop::kernel::math {
namespace {

// exp(x) = (1 + t) * 2^n, where `by` has taken x apart by ln 2: what this gives is t.
int polynomial_part(Expander& e, const Expander::Reduction& by) {
  if (e.is_f32()) return with_tail(e, by, {0x1.fffffcp-2, 0x1.555492p-3, 0x1.5558aep-5, 0x1.123980p-7, 0x1.6a4f28p-10});
  return with_tail(e, by,
                   {0x1.000000000000ap-1, 0x1.55555555554fap-3, 0x1.5555555550877p-5, 0x1.1111111127be4p-7,
                    0x1.6c16c1842b185p-10, 0x1.a01a012a5b679p-13, 0x1.a0199a09ec9bep-16, 0x1.71df2544cf5cdp-19,
                    0x1.28ad74df00a0dp-22, 0x1.ad7f8a1f075e3p-26});
}

// (1 + t) * power for a power of two in the normal range: one rounding, the same as that of 1 + t.
int raised(Expander& e, int t, int power) {
  return e.has_fma() ? e.fma(t, power, power) : e.mul(e.add(e.constant(1), t), power);
}

Expander::Reduction reduce_by_ln2(Expander& e, int x, int exponent_offset) {
  return e.is_f32() ? e.reduce(x, inverse_ln2, ln2_high_f32, ln2_low_f32, exponent_offset)
                    : e.reduce(x, inverse_ln2, ln2_high_f64, ln2_low_f64, exponent_offset);
}

}  // namespace

// The last product overflows to infinity and rounds to denormals by itself.
int exp(Expander& e, int x) {
  const int low = e.at_least(x, e.constant(e.is_f32() ? -104 : -746));
  const int clamped = e.at_most(low, e.constant(e.is_f32() ? 89 : 710));
  const auto by = reduce_by_ln2(e, clamped, 0);
  const auto [first, second] = e.split_power(by.n);
  return e.mul(raised(e, polynomial_part(e, by), first), second);
}

// With y = exp(-|x|): 1 / (1 + y), or y / (1 + y) for negative x, so that small results keep their relative accuracy. Both sides of the
// fraction are multiplied by a power of two that keeps y out of the denormal range: only the quotient is rounded to a denormal. 1 + y
// does not wait for y: it is power * t + (1 + power), whose last sum is exact but where y is too small to matter.
int sigmoid(Expander& e, int x) {
  const int minus = e.at_least(e.neg(e.abs(x)), e.constant(e.is_f32() ? -104 : -746));
  const auto by = reduce_by_ln2(e, minus, e.is_f32() ? 64 : 512);
  const int t = polynomial_part(e, by), one = e.constant(e.is_f32() ? 0x1p64 : 0x1p512);
  const int y = raised(e, t, by.power);
  const int sum = e.has_fma() ? e.fma(t, by.power, e.add(one, by.power)) : e.add(one, y);
  return e.div(e.select(e.less(x, e.constant(0)), y, one), sum);
}

}  // namespace hotloop::kernel::math
