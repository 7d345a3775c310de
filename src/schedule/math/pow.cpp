// pow, as 2^(y log2 x) with log2 x to more than the precision of the result: of f32 in f64, of f64 in pairs of f64, of which the second is what the rounding
// of the first lost. Coefficients: scripts/fit_math.py.
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "schedule/math/expand.h"
#include "schedule/math/units.h"

namespace hotloop::kernel::math {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity(), rounding = 0x1.8p52;

// What both have: the power of a positive number, begun in f64, and the sign. Of f32 what is only compared stays that: twice as many in a vector.
struct Powers {
  int base;      // |x|, or 1 where y is 0
  int exponent;  // y within bounds beyond which nothing changes; 0 where x is 1, NaN where there is no power
  int sign, is_odd;
};

Powers powers(Expander& e, int x, int y, double most) {
  const bool f32 = e.is_f32();
  const int sign = e.int_op(ScalarOp::And, e.to_bits(x), e.integer(f32 ? INT32_MIN : INT64_MIN));
  const int is_negative = e.compare(ScalarOp::Ne, sign, e.integer(0));
  const int magnitude = e.abs(x), zero = e.constant(0), one = e.constant(1), half = e.constant(0.5);
  const int is_one = e.equal(x, one);
  // Of a negative number only whole powers exist, odd ones with its sign; but zero and infinity have all.
  const auto floor = [&](int a) { return e.op(ScalarOp::Floor, a); };
  const int halved = e.mul(y, half);
  const int is_broken = e.compare(ScalarOp::Ne, floor(y), y);
  const int is_odd = e.both(e.equal(floor(y), y), e.compare(ScalarOp::Ne, floor(halved), halved));
  const int is_inside = e.both(e.less(zero, magnitude), e.less(magnitude, e.constant(infinite)));
  const int is_undefined = e.both(e.both(is_negative, is_broken), is_inside);
  // What is to the power of zero is one, and so are all powers of one, NaN or not. No infinity is multiplied by zero.
  const int base_or_one = e.select(e.equal(y, zero), one, magnitude);
  e.begin(DType::F64);
  const int base = f32 ? e.cast(DType::F64, base_or_one) : base_or_one, exponent = f32 ? e.cast(DType::F64, y) : y;
  const int not_a_number = e.constant(std::numeric_limits<double>::quiet_NaN());
  const int bounded = e.at_most(e.at_least(exponent, e.constant(-most)), e.constant(most));
  const int defined = e.select(is_undefined, not_a_number, bounded);
  return {base, e.select(is_one, e.constant(0), defined), sign, is_odd};
}

struct Parts {
  int m, k;  // m 2^k, m in [sqrt(1/2), sqrt(2)): the bits are counted from those of sqrt(1/2)
};
Parts parts_of_normal(Expander& e, int x) {
  const int root = e.integer(0x3fe6a09e667f3bcd), mantissa = e.integer((std::int64_t{1} << 52) - 1);
  const int bits = e.int_op(ScalarOp::Sub, e.to_bits(x), root);
  const int m = e.from_bits(e.int_op(ScalarOp::Add, e.int_op(ScalarOp::And, bits, mantissa), root));
  const int whole = e.int_op(ScalarOp::Add, e.int_op(ScalarOp::Shr, bits, e.integer(52)),
                             e.integer(std::bit_cast<std::int64_t>(rounding)));
  return {m, e.sub(e.from_bits(whole), e.constant(rounding))};
}

int with_sign(Expander& e, int result, const Powers& p) {
  const int sign = e.select_bits(p.is_odd, p.sign, e.integer(0));
  return e.from_bits(e.int_op(ScalarOp::Or, e.to_bits(result), sign));
}

// 2^power in f64 to more than the precision of f32.
int two_to(Expander& e, int power) {
  // Far outside of what f32 holds, far inside of what f64 does.
  const auto by = e.reduce(e.at_most(e.at_least(power, e.constant(-200)), e.constant(200)), 1, 1, 0);
  const int fraction =
      e.polynomial(by.r, e.mul(by.r, by.r),
                   {0x1.ffffffffabbd4p-1, 0x1.62e42ff1163b1p-1, 0x1.ebfbe0a4be048p-3, 0x1.c6b08aaf09574p-5,
                    0x1.3b29dc412a26dp-7, 0x1.5d8a70ae44722p-10, 0x1.446a1fa2cad1cp-13, 0x1.fe1758302a048p-17});
  return e.mul(fraction, by.power);
}

// With so much to spare that the last rounding is all but the only one.
int pow_f32(Expander& e, int x, int y) {
  const Powers p = powers(e, x, y, 0x1p128);
  Parts parts = parts_of_normal(e, p.base);                                 // all numbers of f32 are normal ones of f64
  int k = e.select(e.less(p.base, e.constant(infinite)), parts.k, p.base);  // infinity and NaN stay what they are
  k = e.select(e.equal(p.base, e.constant(0)), e.constant(-infinite), k);
  const int one = e.constant(1), s = e.div(e.sub(parts.m, one), e.add(parts.m, one)), z = e.mul(s, s);
  const int series = e.polynomial(z, e.mul(z, z),
                                  {0x1.71547652b8251p+1, 0x1.ec709dc53c2f8p-1, 0x1.2776c29383199p-1,
                                   0x1.a61a2e8fc1897p-2, 0x1.479560145705dp-2, 0x1.21b055cc81804p-2});
  const int log2 = e.fma(s, series, k);

  const int result = two_to(e, e.mul(log2, p.exponent));
  e.begin(DType::F32);
  return with_sign(e, e.cast(DType::F32, result), p);
}

// Of |a| >= |b|, or a zero.
Pair sum(Expander& e, int a, int b) {
  const int high = e.add(a, b);
  return {high, e.sub(b, e.sub(high, a))};
}

Pair product(Expander& e, const Pair& a, const Pair& b) {
  const Pair highs = product(e, a.high, b.high);
  return {highs.high, e.add(highs.low, e.fma(a.high, b.low, e.mul(a.low, b.high)))};
}

// log2 of m in [sqrt(1/2), sqrt(2)) by s G(s^2), s = (m - 1) / (m + 1); the first two terms of G in pairs.
Pair log2(Expander& e, int m) {
  const int one = e.constant(1), f = e.sub(m, one), u = e.add(m, one), u_low = e.sub(m, e.sub(u, one));
  const int quotient = e.div(f, u);
  const Pair back = product(e, quotient, u);
  const int rest = e.sub(e.sub(e.sub(f, back.high), back.low), e.mul(quotient, u_low));
  const Pair s{quotient, e.div(rest, u)}, z = product(e, s, s);
  const int tail = e.mul(
      z.high, e.polynomial(z.high, e.mul(z.high, z.high),
                           {0x1.2776c50ef9d24p-1, 0x1.a61762a759875p-2, 0x1.484b14219541bp-2, 0x1.0c9a63d87a2edp-2,
                            0x1.c69f8b57dc9b1p-3, 0x1.87b0d5970456ep-3, 0x1.85e850ff27624p-3}));
  const Pair second = sum(e, e.constant(0x1.ec709dc3a03fdp-1), e.add(e.constant(0x1.d27f05548af0cp-55), tail));
  const Pair more = product(e, second, z);
  Pair g = sum(e, e.constant(0x1.71547652b82fep+1), more.high);
  g.low = e.add(g.low, e.add(e.constant(0x1.777d0ffda0d24p-55), more.low));
  return product(e, g, s);
}

// 2^(high + low) of a high from -1100 to 1100.
int two_to(Expander& e, int high, int low) {
  const auto by = e.reduce(high, 1, 1, 0);
  const int r = e.add(by.r, low);
  const int q =
      e.polynomial(r, e.mul(r, r),
                   {0x1.62e42fefa39efp-1, 0x1.ebfbdff82c5a4p-3, 0x1.c6b08d7049fe8p-5, 0x1.3b2ab6fba0117p-7,
                    0x1.5d87fe78cd6fcp-10, 0x1.4309130ed94a4p-13, 0x1.ffcbfba9756abp-17, 0x1.62bfc79c39b38p-20,
                    0x1.b5267cf544107p-24, 0x1.e61b5140132c4p-28, 0x1.e79b99b386bc1p-32});
  // 1 is added last: one rounding of the whole.
  return e.times_power(e.fma(r, q, e.constant(1)), by.n);
}

int pow_f64(Expander& e, int x, int y) {
  const Powers p = powers(e, x, y, 0x1p65);
  const int zero = e.constant(0), is_small = e.less(p.base, e.constant(0x1p-1022));
  const Parts parts = parts_of_normal(e, e.select(is_small, e.mul(p.base, e.constant(0x1p54)), p.base));
  const int k = e.select(is_small, e.sub(parts.k, e.constant(54)), parts.k);
  const Pair fraction = log2(e, parts.m), whole = sum(e, k, fraction.high);
  const Pair power = product(e, {whole.high, e.add(whole.low, fraction.low)}, {p.exponent, zero});
  // Of zero and infinity nothing but the direction counts; NaN stays NaN.
  const int end = e.select(e.equal(p.base, zero), e.constant(-2000), e.at_most(p.base, e.constant(2000)));
  const int towards = e.fma(end, e.copy_sign(e.constant(1), p.exponent), e.mul(zero, p.exponent));
  const int is_inside = e.both(e.less(zero, p.base), e.less(p.base, e.constant(infinite)));
  const int all = e.select(is_inside, power.high, towards);
  const int bounded = e.at_most(e.at_least(all, e.constant(-1100)), e.constant(1100));
  const int rest = e.select(e.equal(bounded, power.high), power.low, zero);
  return with_sign(e, two_to(e, bounded, rest), p);
}

// A positive number whose logarithm is known: one product. Of f64 those whose logarithm is a number of f64, powers of two.
std::optional<double> known_log2(const Expander& e, int x) {
  const std::optional<double> base = e.known(x);
  if (!base || !(*base > 0) || *base == 1 || *base == infinite) return std::nullopt;
  const long double log = std::log2(static_cast<long double>(*base));
  if (!e.is_f32() && log != std::floor(log)) return std::nullopt;
  return static_cast<double>(log);
}

int pow_of_known(Expander& e, double log2, int y) {
  if (e.is_f32()) {
    e.begin(DType::F64);
    const int result = two_to(e, e.mul(e.constant(log2), e.cast(DType::F64, y)));
    e.begin(DType::F32);
    return e.cast(DType::F32, result);
  }
  const int zero = e.constant(0);
  const Pair power = log2 == 1 ? Pair{y, zero} : product(e, e.constant(log2), y);
  const int bounded = e.at_most(e.at_least(power.high, e.constant(-1100)), e.constant(1100));
  return two_to(e, bounded, log2 == 1 ? zero : e.select(e.equal(bounded, power.high), power.low, zero));
}

}  // namespace

int pow(Expander& e, int x, int y) {
  if (const std::optional<double> log2 = known_log2(e, x)) return pow_of_known(e, *log2, y);
  return e.is_f32() ? pow_f32(e, x, y) : pow_f64(e, x, y);
}

}  // namespace hotloop::kernel::math
