// tanh and expm1. Coefficients: scripts/fit_math.py.
#include "schedule/math/expand.h"
#include "schedule/math/units.h"

namespace hotloop::kernel::math {
// With h = expm1(2 |x|) / 2: tanh = h / (h + 1), accurate near 0, where h is |x| itself, and 1 beyond the clamp.
int tanh(Expander& e, int x) {
  const bool f32 = e.is_f32();
  const int y = e.at_most(e.abs(x), e.constant(f32 ? 10 : 22));
  // With fma one product takes out n ln 2 / 2: ln 2 rounded to f32 is off by 1.9e-9 only, which n = 1 makes 0.06 ulp of tanh, and a larger n less,
  // since tanh flattens as fast as n ln 2 grows.
  const auto by = !f32          ? e.reduce(y, 2 * inverse_ln2, ln2_high_f64 / 2, ln2_low_f64 / 2)
                  : e.has_fma() ? e.reduce(y, 2 * inverse_ln2, ln2_f32 / 2, 0)
                                : e.reduce(y, 2 * inverse_ln2, ln2_high_f32 / 2, ln2_low_f32 / 2);
  // expm1(2 r) / 2
  const int q =
      f32 ? with_tail(e, by, {0x1.fffffep-1, 0x1.5554b4p-1, 0x1.5556f6p-2, 0x1.122536p-3, 0x1.6b979ep-5})
          : with_tail(e, by,
                      {0x1.0000000000000p+0, 0x1.5555555555559p-1, 0x1.555555555553fp-2, 0x1.111111110f6d6p-3,
                       0x1.6c16c16c1f0b1p-5, 0x1.a01a01afd5238p-7, 0x1.a01a017bb5e19p-9, 0x1.71ddf87bda427p-11,
                       0x1.27e5364e1e8a4p-13, 0x1.af5e79a460792p-16, 0x1.1ee8552340e73p-18});
  const int half = e.constant(0.5);
  const int h = e.fma(by.power, q, e.fma(by.power, half, e.neg(half)));
  return e.copy_sign(e.div(h, e.add(h, e.constant(1))), x);
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
