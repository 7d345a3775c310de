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
// C = 1 + c[0] r^2 + ... and S = r (1 + s[0] r^2 + ...), for |r| <= ln 2 / 4.
constexpr double even_f32[] = {0x1.998338p-2}, odd_f32[] = {0x1.10b7dap-4};
constexpr double even_f64[] = {0x1.c7192d5a76d47p-2, 0x1.03fb58996b29bp-6},
                 odd_f64[] = {0x1.c70f601486247p-4, 0x1.152ef3ed006ddp-10};

// factor * (1 + c[0] x^2 + c[1] x^4 + ...), where `square` is that of unit * x; a unit is a power of two.
int one_and(Expander& e, int square, std::span<const double> c, double unit = 1, double factor = 1) {
  std::vector<double> coefficients(c.begin(), c.end());
  double scale = factor;
  for (double& k : coefficients) k *= scale /= unit * unit;
  const auto constant = [&](std::size_t i) { return e.constant(coefficients[i]); };
  const int tail = coefficients.size() == 1   ? constant(0)
                   : coefficients.size() == 2 ? e.fma(square, constant(1), constant(0))
                                              : e.polynomial(square, e.mul(square, square), coefficients);
  return e.fma(square, tail, e.constant(factor));
}

struct Parts {
  int even, odd;
};

// C and S, times factor.
Parts parts_of(Expander& e, int r, double factor) {
  const int square = e.mul(r, r);
  return {one_and(e, square, even_f64, 1, factor), e.mul(r, one_and(e, square, odd_f64, 1, factor))};
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
  const Parts of = f32 ? Parts{one_and(e, e.mul(by.r, by.r), r_coth_r_f32), by.r} : parts_of(e, by.r, 31. / 32);
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

// With e^(-x) = P (C - S) / (C + S): (C + S) / (C + S + P (C - S)). 1 is 2^-64 here and P as much smaller, so that P stays in the normal range where
// the result leaves it: only the quotient is rounded to a denormal. Both sides are multiplied by a number under which their roundings weigh least
// together.
int sigmoid(Expander& e, int x) {
  const bool f32 = e.is_f32(), has_fma = e.has_fma();
  const int clamped = e.at_most(e.at_least(x, e.constant(f32 ? -104 : -746)), e.constant(f32 ? 18 : 38));
  const int offset = f32 ? -64 : -512;
  const auto by = !f32      ? e.reduce(clamped, -inverse_ln2, -ln2_high_f64, -ln2_low_f64, offset)
                  : has_fma ? e.reduce(clamped, -inverse_ln2, -ln2_f32, -ln2_rest_f32, offset)
                            : e.reduce(clamped, -inverse_ln2, -ln2_high_f32, -ln2_low_f32, offset);
  // by.r is 2 r.
  if (!has_fma) {
    const double factor = 0x1.bp-1;
    const int c =
        one_and(e, e.mul(by.r, by.r), f32 ? std::span<const double>(r_coth_r_f32) : r_coth_r_f64, 2, 2 * factor);
    const int r = e.mul(by.r, e.constant(factor)), above = e.mul(e.add(c, r), e.constant(std::ldexp(1, offset)));
    return e.div(above, e.add(above, e.mul(by.power, e.sub(c, r))));
  }
  const double factor = f32 ? 0x1.a8p0 : 0x1.ap0;
  // What head lacks of r is too little to change an even function.
  const int square = e.mul(f32 ? by.head : by.r, f32 ? by.head : by.r);
  using Coefficients = std::span<const double>;
  const int even = one_and(e, square, f32 ? Coefficients(even_f32) : even_f64, 2, factor);
  const int odd = one_and(e, square, f32 ? Coefficients(odd_f32) : odd_f64, 2, factor / 2);
  // S is not rounded in f32. In f64 the multipliers have more to do already.
  const int s = f32 ? -1 : e.mul(by.r, odd);
  const int above = e.scaled(f32 ? e.fma(by.r, odd, even) : e.add(even, s), offset);
  const int below = f32 ? e.fma(e.neg(by.r), odd, even) : e.sub(even, s);
  return e.div(above, e.fma(by.power, below, above));
}

}  // namespace hotloop::kernel::math
