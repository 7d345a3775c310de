// sigmoid and tanh. Coefficients: scripts/fit_math.py.
//
// Both are fractions in e^u = P e^(2r), P = 2^n, and e^(2r) is one of C = r coth r: (C + r) / (C - r). C is even and nearly 1: a short polynomial in
// r^2 gives it, few instructions after one another, and one division ends the function.
#include <cmath>
#include <span>
#include <vector>

#include "schedule/math/expand.h"
#include "schedule/math/units.h"

namespace hotloop::kernel::math {
namespace {

// For |r| <= ln 2 / 4; in f64 also for r up to 3/8 ln 2.
constexpr double r_coth_r_f32[] = {0x1.55551ep-2, -0x1.6aa3dep-6};
constexpr double r_coth_r_f64[] = {0x1.555555555553ep-2, -0x1.6c16c16bebd30p-6, 0x1.1566aaf253bfep-9,
                                   -0x1.bbd41c4e1696ap-13, 0x1.6376928ccf007p-16};
constexpr double r_coth_r_f64_wide[] = {0x1.5555555555552p-2,   -0x1.6c16c16c1356bp-6, 0x1.1566abb5d3cd0p-9,
                                        -0x1.bbd75cf8152b0p-13, 0x1.6695418147c5fp-16, -0x1.1bba759592fdap-19};

// factor * r coth r, where `square` is that of unit * r; a unit is a power of two.
int r_coth_r(Expander& e, int square, std::span<const double> of, double unit = 1, double factor = 1) {
  std::vector<double> coefficients(of.begin(), of.end());
  double scale = factor;
  for (double& c : coefficients) c *= scale /= unit * unit;
  return e.fma(square, e.polynomial(square, e.mul(square, square), coefficients), e.constant(factor));
}

// tanh = ((P - 1) C + (P + 1) r) / ((P + 1) C + (P - 1) r): what follows C is two products side by side and the division, the least that a step of a
// recurrent network could wait for. Odd to the last bit: -n in place of n multiplies both sides by the same power of two.
int tanh_of_two_products(Expander& e, int x) {
  const int most = e.constant(9.02), one = e.constant(1);
  const int clamped = e.at_most(e.at_least(x, e.neg(most)), most);
  // One product takes out n ln 2 / 2: ln 2 rounded to f32 is off by 1.9e-9 only, which n = 1 makes 0.06 ulp of tanh, and a larger n less, since tanh
  // flattens as fast as n ln 2 grows.
  const auto by = e.reduce(clamped, 2 * inverse_ln2, ln2_f32 / 2, 0);
  const int c = r_coth_r(e, e.mul(by.r, by.r), r_coth_r_f32);
  // -(1 - P) is -0 at P = 1, which leaves -0 its sign.
  const int plus = e.add(by.power, one), minus = e.neg(e.sub(one, by.power));
  return e.div(e.fma(minus, c, e.mul(plus, by.r)), e.fma(plus, c, e.mul(minus, by.r)));
}

// The same as ((P - 1) (C + r) + 2r) over that and 2 (C - r): what rounds in the upper side cancels where tanh is near 1. In f64 n becomes 1 late, since
// C + 3r is the more accurate the larger r is: within 1.73 ulp. There one product takes out n ln 2 / 2, too: what ln 2 loses when it is rounded to f64
// is a third of what x itself may be off by.
int tanh_of_difference(Expander& e, int x) {
  const bool f32 = e.is_f32();
  const int clamped = e.at_most(e.abs(x), e.constant(f32 ? 9.02 : 19.07));
  const auto by = f32           ? e.reduce(clamped, 2 * inverse_ln2, ln2_high_f32 / 2, ln2_low_f32 / 2)
                  : e.has_fma() ? e.reduce(clamped, 2 * inverse_ln2, ln2_f64 / 2, 0, 0, -0.25)
                                : e.reduce(clamped, 2 * inverse_ln2, ln2_high_f64 / 2, ln2_low_f64 / 2, 0, -0.25);
  const int square = e.mul(by.r, by.r);
  const int c = f32 ? r_coth_r(e, square, r_coth_r_f32) : r_coth_r(e, square, r_coth_r_f64_wide);
  const int above = e.fma(e.sub(by.power, e.constant(1)), e.add(c, by.r), e.add(by.r, by.r));
  return e.copy_sign(e.div(above, e.fma(e.constant(2), e.sub(c, by.r), above)), x);
}

}  // namespace

int tanh(Expander& e, int x) {
  return e.is_f32() && e.has_fma() ? tanh_of_two_products(e, x) : tanh_of_difference(e, x);
}

// With e^(-x) = P (C - r) / (C + r): (C + r) / ((1 + P) C + (1 - P) r). 1 is 2^-64 here and P as much smaller, so that P stays in the normal range where
// the result leaves it: only the quotient is rounded to a denormal. Both sides are multiplied by 27 / 32, so that the upper one, between 1.65 and 2.37
// (times a power of two), is from 1.39 to 2 instead, where a rounding counts least.
int sigmoid(Expander& e, int x) {
  const bool f32 = e.is_f32(), short_chain = f32 && e.has_fma();
  const int clamped = e.at_most(e.at_least(x, e.constant(f32 ? -104 : -746)), e.constant(f32 ? 18 : 38));
  const int offset = f32 ? -64 : -512;
  const auto by = short_chain ? e.reduce(clamped, -inverse_ln2, -ln2_f32, -ln2_rest_f32, offset)
                  : f32       ? e.reduce(clamped, -inverse_ln2, -ln2_high_f32, -ln2_low_f32, offset)
                              : e.reduce(clamped, -inverse_ln2, -ln2_high_f64, -ln2_low_f64, offset);
  // by.r is 2 r.
  const double factor = 0x1.bp-1, unit = std::ldexp(1, offset);
  const int one = e.constant(unit);
  const auto c_of = [&](int twice_r, std::span<const double> of) {
    return r_coth_r(e, e.mul(twice_r, twice_r), of, 2, 2 * factor);
  };
  if (!short_chain) {
    const int c = f32 ? c_of(by.r, r_coth_r_f32) : c_of(by.r, r_coth_r_f64);
    if (!e.has_fma()) {
      const int r = e.mul(by.r, e.constant(factor)), above = e.mul(e.add(c, r), one);
      return e.div(above, e.add(above, e.mul(by.power, e.sub(c, r))));
    }
    // C - r from C + r, so that they are wrong by the same where P is 1 and their sum matters.
    const int plus = e.fma(by.r, e.constant(factor), c), minus = e.fma(by.r, e.constant(-2 * factor), plus);
    const int above = e.scaled(plus, offset);
    return e.div(above, e.fma(by.power, minus, above));
  }
  const int c = c_of(by.head, r_coth_r_f32);  // what head lacks of r is too little to change C
  // 1 - P as 2 - (1 + P): where P is lost in one of the two it is in the other, or the result would exceed 1.
  const int plus = e.add(one, by.power), minus = e.fma(plus, e.constant(-factor), e.constant(2 * factor * unit));
  const int above = e.fma(one, c, e.mul(by.r, e.constant(factor * unit)));
  return e.div(above, e.fma(plus, c, e.mul(minus, by.r)));
}

}  // namespace hotloop::kernel::math
