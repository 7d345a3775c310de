// sigmoid and tanh. Coefficients: scripts/fit_math.py.
//
// Both are fractions in e^u = P e^(2r), P = 2^n, and e^(2r) is one of an even and an odd function: (C + S) / (C - S) with S = C tanh r. Where C is
// r coth r, S is r itself: C is nearly 1, and a short polynomial in r^2 gives it. For 53 bits two shorter ones, of C and of S / r, take fewer
// instructions together. One division ends the function.
#include <cmath>
#include <span>
#include <vector>

#include "schedule/math/expand.h"
#include "schedule/math/units.h"

namespace hotloop::kernel::math {
namespace {

// For |r| <= ln 2 / 4; in f64 also for r up to 3/8 ln 2.
constexpr double r_coth_r_f32[] = {0x1.55551ep-2, -0x1.6aa3dep-6};
// For targets without fma; for |r| <= ln 2 / 4 and for r up to 3/8 ln 2.
constexpr double r_coth_r_f64[] = {0x1.555555555553p-2, -0x1.6c16c16bebd30p-6, 0x1.1566aaf253bfep-9,
                                   -0x1.bbd41c4e1696ap-13, 0x1.6376928ccf007p-16};
constexpr double r_coth_r_f64_wide[] = {0x1.5555555555552p-2,   -0x1.6c16c16c1356bp-6, 0x1.1566abb5d3cd0p-9,
                                        -0x1.bbd75cf8152b0p-13, 0x1.6695418147c5fp-16, -0x1.1bba759592fdap-19};
// C = 1 + c[0] r^2 + c[1] r^4 and S = r (1 + s[0] r^2 + s[1] r^4), for |r| <= ln 2 / 4.
constexpr double even_f64[] = {0x1.c7192d5a76d47p-2, 0x1.03fb58996b29bp-6},
                 odd_f64[] = {0x1.c70f601486247p-4, 0x1.152ef3ed006ddp-10};

// factor * (1 + c[0] x^2 + c[1] x^4 + ...), where `square` is that of unit * x; a unit is a power of two.
int one_and(Expander& e, int square, std::span<const double> c, double unit = 1, double factor = 1) {
  std::vector<double> coefficients(c.begin(), c.end());
  double scale = factor;
  for (double& k : coefficients) k *= scale /= unit * unit;
  const int tail = coefficients.size() < 3 ? e.fma(square, e.constant(coefficients[1]), e.constant(coefficients[0]))
                                           : e.polynomial(square, e.mul(square, square), coefficients);
  return e.fma(square, tail, e.constant(factor));
}

struct Parts {
  int even, odd;
};

// C and S, times factor, of an argument that is r times unit.
Parts parts_of(Expander& e, int argument, double unit = 1, double factor = 1) {
  const int square = e.mul(argument, argument);
  return {one_and(e, square, even_f64, unit, factor),
          e.mul(argument, one_and(e, square, odd_f64, unit, factor / unit))};
}

// tanh = ((P - 1) C + (P + 1) S) / ((P + 1) C + (P - 1) S): what follows C is two products side by side and the division, the least that a step of a
// recurrent network could wait for. Odd to the last bit: -n in place of n multiplies both sides by the same power of two.
int tanh_of_two_products(Expander& e, int x) {
  const bool f32 = e.is_f32();
  const int most = e.constant(f32 ? 9.02 : 19.07), one = e.constant(1);
  const int clamped = e.at_most(e.at_least(x, e.neg(most)), most);
  // One product takes out n ln 2 / 2: ln 2 rounded to f32 is off by 1.9e-9 only, which n = 1 makes 0.06 ulp of tanh, and a larger n less, since tanh
  // flattens as fast as n ln 2 grows. What ln 2 loses in f64 is a third of what x itself may be off by.
  const auto by = e.reduce(clamped, 2 * inverse_ln2, (f32 ? ln2_f32 : ln2_f64) / 2, 0);
  // In f64 C is a little below 1, where it is rounded to half of what it is above.
  const Parts of = f32 ? Parts{one_and(e, e.mul(by.r, by.r), r_coth_r_f32), by.r} : parts_of(e, by.r, 1, 31. / 32);
  // -(1 - P) is -0 at P = 1, which leaves -0 its sign.
  const int plus = e.add(by.power, one), minus = e.neg(e.sub(one, by.power));
  return e.div(e.fma(minus, of.even, e.mul(plus, of.odd)), e.fma(plus, of.even, e.mul(minus, of.odd)));
}

// The same for targets without fma as ((P - 1) (C + r) + 2r) over that and 2 (C - r): what rounds in the upper side cancels where tanh is near 1. In
// f64 n becomes 1 late, since C + 3r is the more accurate the larger r is.
int tanh_of_difference(Expander& e, int x) {
  const bool f32 = e.is_f32();
  const int clamped = e.at_most(e.abs(x), e.constant(f32 ? 9.02 : 19.07));
  const auto by = f32 ? e.reduce(clamped, 2 * inverse_ln2, ln2_high_f32 / 2, ln2_low_f32 / 2)
                      : e.reduce(clamped, 2 * inverse_ln2, ln2_high_f64 / 2, ln2_low_f64 / 2, 0, -0.25);
  const int square = e.mul(by.r, by.r);
  const int c = f32 ? one_and(e, square, r_coth_r_f32) : one_and(e, square, r_coth_r_f64_wide);
  const int above = e.fma(e.sub(by.power, e.constant(1)), e.add(c, by.r), e.add(by.r, by.r));
  return e.copy_sign(e.div(above, e.fma(e.constant(2), e.sub(c, by.r), above)), x);
}

}  // namespace

int tanh(Expander& e, int x) { return e.has_fma() ? tanh_of_two_products(e, x) : tanh_of_difference(e, x); }

// With e^(-x) = P (C - S) / (C + S): (C + S) / ((1 + P) C + (1 - P) S). 1 is 2^-64 here and P as much smaller, so that P stays in the normal range where
// the result leaves it: only the quotient is rounded to a denormal. Both sides are multiplied by 27 / 32, so that the upper one, between 1.65 and 2.37
// (times a power of two), is from 1.39 to 2 instead, where a rounding counts least.
int sigmoid(Expander& e, int x) {
  const bool f32 = e.is_f32(), has_fma = e.has_fma();
  const int clamped = e.at_most(e.at_least(x, e.constant(f32 ? -104 : -746)), e.constant(f32 ? 18 : 38));
  const int offset = f32 ? -64 : -512;
  const auto by = !f32      ? e.reduce(clamped, -inverse_ln2, -ln2_high_f64, -ln2_low_f64, offset)
                  : has_fma ? e.reduce(clamped, -inverse_ln2, -ln2_f32, -ln2_rest_f32, offset)
                            : e.reduce(clamped, -inverse_ln2, -ln2_high_f32, -ln2_low_f32, offset);
  // by.r is 2 r.
  const double factor = 0x1.bp-1, unit = std::ldexp(1, offset);
  const int one = e.constant(unit);
  const auto c_of = [&](int twice_r, std::span<const double> of) {
    return one_and(e, e.mul(twice_r, twice_r), of, 2, 2 * factor);
  };
  if (!has_fma) {
    const int c = f32 ? c_of(by.r, r_coth_r_f32) : c_of(by.r, r_coth_r_f64);
    const int r = e.mul(by.r, e.constant(factor)), above = e.mul(e.add(c, r), one);
    return e.div(above, e.add(above, e.mul(by.power, e.sub(c, r))));
  }
  if (!f32) {
    const Parts of =
        parts_of(e, by.r, 2, 2 * 0x1.ap-1);  // 13 / 16, at which the roundings of C + S and C - S weigh least together
    const int above = e.scaled(e.add(of.even, of.odd), offset);
    return e.div(above, e.fma(by.power, e.sub(of.even, of.odd), above));
  }
  const int c = c_of(by.head, r_coth_r_f32);  // what head lacks of r is too little to change C
  // 1 - P as 2 - (1 + P): where P is lost in one of the two it is in the other, or the result would exceed 1.
  const int plus = e.add(one, by.power), minus = e.fma(plus, e.constant(-factor), e.constant(2 * factor * unit));
  const int above = e.fma(one, c, e.mul(by.r, e.constant(factor * unit)));
  return e.div(above, e.fma(plus, c, e.mul(minus, by.r)));
}

}  // namespace hotloop::kernel::math
