// exp and expm1. Coefficients: scripts/fit_math.py.
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

Expander::Reduction reduce_by_ln2(Expander& e, int x, int exponent_offset) {
  return e.is_f32() ? e.reduce(x, inverse_ln2, ln2_high_f32, ln2_low_f32, exponent_offset)
                    : e.reduce(x, inverse_ln2, ln2_high_f64, ln2_low_f64, exponent_offset);
}

}  // namespace

// What is too large becomes infinity, and what is too small is rounded to a denormal, by itself.
int exp(Expander& e, int x) {
  const int low = e.at_least(x, e.constant(e.is_f32() ? -104 : -746));
  const int clamped = e.at_most(low, e.constant(e.is_f32() ? 89 : 710));
  const auto by = reduce_by_ln2(e, clamped, 0);
  return e.one_and_times_power(polynomial_part(e, by), by.n);
}

int scaled_exp(Expander& e, int high, int low, int factor) {
  const auto by = reduce_by_ln2(e, high, 0);
  const int t = polynomial_part(e, by);
  return e.one_and_times_power(e.fma(low, e.add(e.constant(1), t), t), by.n, factor);
}

int expm1(Expander& e, int x) {
  const bool f32 = e.is_f32();
  const int low = e.at_least(x, e.constant(f32 ? -20 : -40));
  const int clamped = e.at_most(low, e.constant(f32 ? 89 : 710));
  // 2^(n-1): the greatest n has no power in range.
  const auto by = f32 ? e.reduce(clamped, inverse_ln2, ln2_high_f32, ln2_low_f32, -1)
                      : e.reduce(clamped, inverse_ln2, ln2_high_f64, ln2_low_f64, -1);
  const int q =
      f32 ? with_tail(e, by, {0x1.fffffep-2, 0x1.5554b4p-3, 0x1.5556f6p-5, 0x1.122536p-7, 0x1.6b979ep-10})
          : with_tail(e, by,
                      {0x1.0000000000000p-1, 0x1.5555555555559p-3, 0x1.555555555553fp-5, 0x1.111111110f6d6p-7,
                       0x1.6c16c16c1f0b1p-10, 0x1.a01a01afd5238p-13, 0x1.a01a017bb5e19p-16, 0x1.71ddf87bda427p-19,
                       0x1.27e5364e1e8a4p-22, 0x1.af5e79a460792p-26, 0x1.1ee8552340e73p-29});
  const int h = e.fma(by.power, q, e.sub(by.power, e.constant(0.5)));
  // Half of a denormal would lose its last bit.
  const int tiny = e.less(e.abs(x), e.constant(f32 ? 0x1p-40 : 0x1p-60));
  return e.select(tiny, x, e.add(h, h));
}

}  // namespace hotloop::kernel::math
