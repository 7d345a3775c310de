// log and log1p. Coefficients: scripts/fit_math.py.
#include <limits>

#include "schedule/math/expand.h"
#include "schedule/math/units.h"

namespace hotloop::kernel::math {
namespace {

// log(x) + correction for positive normal x; `exponent` is added to that of x.
int log_of_normal(Expander& e, int x, int exponent, int correction) {
  const bool f32 = e.is_f32();
  const int mantissa_bits = f32 ? 23 : 52;
  // m in [sqrt(1/2), sqrt(2)): the bits are counted from those of sqrt(1/2).
  const int root = e.integer(f32 ? 0x3f3504f3 : 0x3fe6a09e667f3bcd);
  const int bits = e.int_op(ScalarOp::Sub, e.to_bits(x), root);
  const int shifted = e.int_op(ScalarOp::Shr, bits, e.integer(mantissa_bits));
  const int fraction = e.int_op(ScalarOp::And, bits, e.integer((std::int64_t{1} << mantissa_bits) - 1));
  const int m = e.from_bits(e.int_op(ScalarOp::Add, fraction, root));
  int k = e.int_to_float(shifted);
  if (exponent >= 0) k = e.add(k, exponent);
  const int f = e.sub(m, e.constant(1));
  const int half = e.constant(0.5);
  int tail;  // log(1 + f) - f
  if (f32) {
    const int f2 = e.mul(f, f);
    const int rest = e.polynomial(
        f, f2,
        {-0x1.000226p-2, 0x1.99a01cp-3, -0x1.54728ap-3, 0x1.22d932p-3, -0x1.0d824ap-3, 0x1.055e98p-3, -0x1.38c910p-4});
    const int poly = e.fma(rest, f, e.constant(0x1.555554p-2));
    tail = e.mul(f2, e.fma(f, poly, e.neg(half)));
  } else {
    // log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), s = f / (2 + f)
    const int s = e.div(f, e.add(e.constant(2), f));
    const int z = e.mul(s, s);
    const int series =
        e.mul(z, e.polynomial(z, e.mul(z, z),
                              {0x1.5555555555592p-1, 0x1.999999997fdafp-2, 0x1.24924941f187dp-2, 0x1.c71c520917e3bp-3,
                               0x1.74663ef504fe1p-3, 0x1.39a1b991734b3p-3, 0x1.2f056e239719fp-3}));
    const int square = e.mul(e.mul(half, f), f);
    tail = e.sub(e.mul(s, e.add(square, series)), square);
  }
  if (correction >= 0) tail = e.add(tail, correction);
  // Small parts first.
  const int low = e.fma(k, e.constant(f32 ? ln2_low_f32 : ln2_low_f64), tail);
  return e.fma(k, e.constant(f32 ? ln2_high_f32 : ln2_high_f64), e.add(f, low));
}

}  // namespace

int log_of_normal(Expander& e, int x) { return log_of_normal(e, x, -1, -1); }

int log(Expander& e, int x) {
  const bool f32 = e.is_f32();
  const int zero = e.constant(0);
  const int small = e.less(x, e.constant(f32 ? 0x1p-126 : 0x1p-1022));
  const int normal = e.mul(x, e.select(small, e.constant(f32 ? 0x1p24 : 0x1p54), e.constant(1)));
  const int exponent = e.select(small, e.constant(f32 ? -24 : -54), zero);
  // What is no number or not finite is added: adding -0 changes nothing, and compilers of C make branches around a formula that is selected.
  int other = e.select(e.less(zero, x), e.constant(-0.0), e.constant(std::numeric_limits<double>::quiet_NaN()));
  other = e.select(e.equal(x, zero), e.constant(-std::numeric_limits<double>::infinity()), other);
  other = e.select(e.less(x, e.constant(std::numeric_limits<double>::infinity())), other, x);
  return e.add(log_of_normal(e, normal, exponent, -1), other);
}

// log(u) + (x - (u - 1)) / u with u = 1 + x rounded.
int log1p(Expander& e, int x) {
  const int one = e.constant(1), zero = e.constant(0);
  const int u = e.add(one, x);
  // What the rounding of u lost; the larger of 1 and x must be taken from u first.
  const int lost_small = e.sub(x, e.sub(u, one)), lost_large = e.sub(one, e.sub(u, x));
  const int lost = e.select(e.less(one, x), lost_large, lost_small);
  int y = log_of_normal(e, u, -1, e.div(lost, u));
  y = e.select(e.less(x, e.constant(std::numeric_limits<double>::infinity())), y, x);
  y = e.select(e.equal(x, e.constant(-1)), e.constant(-std::numeric_limits<double>::infinity()), y);
  y = e.select(e.less(x, e.constant(-1)), e.constant(std::numeric_limits<double>::quiet_NaN()), y);
  return e.select(e.equal(x, zero), x, y);
}

}  // namespace hotloop::kernel::math
