// pow of f32, by way of f64: 2^(y log2 x) with so much to spare that the last rounding is all but the only one. Coefficients: scripts/fit_math.py.
#include <bit>
#include <limits>

#include "schedule/math/expand.h"
#include "schedule/math/units.h"

namespace hotloop::kernel::math {

int pow(Expander& e, int x, int y) {
  constexpr double infinite = std::numeric_limits<double>::infinity(), rounding = 0x1.8p52;
  e.begin(DType::F32);
  const int sign = e.int_op(ScalarOp::And, e.to_bits(x), e.integer(INT32_MIN));
  const int is_negative = e.compare(ScalarOp::Ne, sign, e.integer(0));
  const int is_one = e.equal(x, e.constant(1)), magnitude = e.abs(x);
  e.begin(DType::F64);
  const int zero = e.constant(0), one = e.constant(1), half = e.constant(0.5), infinity = e.constant(infinite);
  const int base = e.cast(DType::F64, magnitude), exponent = e.cast(DType::F64, y);
  // Of a negative number only whole powers exist, odd ones with its sign; but zero and infinity have all.
  const auto floor = [&](int a) { return e.op(ScalarOp::Floor, a); };
  const int halved = e.mul(exponent, half);
  const int is_broken = e.compare(ScalarOp::Ne, floor(exponent), exponent);
  const int is_odd = e.both(e.equal(floor(exponent), exponent), e.compare(ScalarOp::Ne, floor(halved), halved));
  const int is_inside = e.both(e.less(zero, base), e.less(base, infinity));
  const int is_undefined = e.both(e.both(is_negative, is_broken), is_inside);
  const int not_a_number = e.constant(std::numeric_limits<double>::quiet_NaN());
  // What is to the power of zero is one, and so are all powers of one, NaN or not. No infinity is multiplied by zero.
  const int m0 = e.select(e.equal(exponent, zero), one, base);
  const int bounded = e.at_most(e.at_least(exponent, e.constant(-0x1p128)), e.constant(0x1p128));
  const int power = e.select(is_one, zero, e.select(is_undefined, not_a_number, bounded));

  // m in [sqrt(1/2), sqrt(2)): the bits are counted from those of sqrt(1/2). All numbers of f32 are normal ones of f64.
  const int root = e.integer(0x3fe6a09e667f3bcd), mantissa = e.integer((std::int64_t{1} << 52) - 1);
  const int bits = e.int_op(ScalarOp::Sub, e.to_bits(m0), root);
  const int m = e.from_bits(e.int_op(ScalarOp::Add, e.int_op(ScalarOp::And, bits, mantissa), root));
  const int whole = e.int_op(ScalarOp::Add, e.int_op(ScalarOp::Shr, bits, e.integer(52)),
                             e.integer(std::bit_cast<std::int64_t>(rounding)));
  int k = e.sub(e.from_bits(whole), e.constant(rounding));
  k = e.select(e.less(m0, infinity), k, m0);  // infinity and NaN stay what they are
  k = e.select(e.equal(m0, zero), e.constant(-infinite), k);
  const int s = e.div(e.sub(m, one), e.add(m, one)), z = e.mul(s, s);
  const int series = e.polynomial(z, e.mul(z, z),
                                  {0x1.71547652b8251p+1, 0x1.ec709dc53c2f8p-1, 0x1.2776c29383199p-1,
                                   0x1.a61a2e8fc1897p-2, 0x1.479560145705dp-2, 0x1.21b055cc81804p-2});
  const int log2 = e.fma(s, series, k);

  // Far outside of what f32 holds, far inside of what f64 does.
  const int p = e.at_most(e.at_least(e.mul(log2, power), e.constant(-200)), e.constant(200));
  const auto by = e.reduce(p, 1, 1, 0);
  const int fraction =
      e.polynomial(by.r, e.mul(by.r, by.r),
                   {0x1.ffffffffabbd4p-1, 0x1.62e42ff1163b1p-1, 0x1.ebfbe0a4be048p-3, 0x1.c6b08aaf09574p-5,
                    0x1.3b29dc412a26dp-7, 0x1.5d8a70ae44722p-10, 0x1.446a1fa2cad1cp-13, 0x1.fe1758302a048p-17});
  const int result = e.mul(fraction, by.power);
  e.begin(DType::F32);
  const int rounded = e.to_bits(e.cast(DType::F32, result));
  return e.from_bits(e.int_op(ScalarOp::Or, rounded, e.select_bits(is_odd, sign, e.integer(0))));
}

}  // namespace hotloop::kernel::math
