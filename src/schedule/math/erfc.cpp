// The complement of the error function, the normal distribution function and its logarithm. Coefficients: scripts/fit_math.py.
#include <numbers>

#include "schedule/math/expand.h"

namespace hotloop::kernel::math {
namespace {

constexpr double root_of_half = std::numbers::sqrt2 / 2;

// exp(x x) erfc(x) of x >= 0. As Shepherd and Laframboise (Chebyshev approximation of (1 + 2 x) exp(x x) erfc(x) in 0 <= x < infinity, Mathematics of
// Computation 36, 1981) map the half line: a polynomial of (x - k) / (x + k), over 1 + 2 x.
int scaled_complement(Expander& e, int x) {
  const bool f32 = e.is_f32();
  const int bounded = e.at_most(x, e.constant(f32 ? 0x1p60 : 0x1p500)), k = e.constant(f32 ? 2 : 3);
  const int u = e.div(e.sub(bounded, k), e.add(bounded, k)), square = e.mul(u, u);
  const int p = f32 ? e.polynomial(u, square,
                                   {0x1.46e80ep+0, -0x1.7bf5dcp-4, -0x1.5407e6p-3, 0x1.4ff904p-3, -0x1.bc1fcep-5,
                                    -0x1.06b014p-7, 0x1.1cea64p-7, 0x1.3d73a2p-10, -0x1.6f6e72p-10, -0x1.6fe8eap-12,
                                    0x1.55d766p-13, 0x1.fcca9cp-15})
                    : e.polynomial(u, square, {0x1.40c522d7e4987p+0,   -0x1.15c084bb9e8f3p-3,  -0x1.85a15c58a9495p-5,
                                               0x1.098366a5b46a5p-3,   -0x1.e88b803a62eaep-4,  0x1.17ca2877f225ap-4,
                                               -0x1.8574c4044d7e9p-6,  0x1.4b884e4178d9cp-9,   0x1.ef1bd8c603ab8p-10,
                                               -0x1.98db50b9b4f16p-11, -0x1.b910de1fc1f7ep-14, 0x1.065a3137d27b7p-13,
                                               0x1.4bcada8e23584p-18,  -0x1.513afa51be7d3p-16, -0x1.81dcb64f335d1p-21,
                                               0x1.d20a359adbb2fp-19,  0x1.6970971a05af8p-22,  -0x1.4af590b41dd64p-21,
                                               -0x1.02b9c9ba6fa3cp-23, 0x1.b4e29a7ba4ad0p-24,  0x1.dde1e97d8d6c1p-26,
                                               -0x1.c7a05fddd093fp-27, -0x1.b4888b8240adbp-29, 0x1.0c53b2f974e66p-30});
  return e.div(p, e.fma(e.constant(2), x, e.constant(1)));
}

// exp(-t t) scaled, or exp(-t t / 2) scaled / 2, of t >= 0. The square is the exact sum of two numbers: one that is rounded would be wrong by as many
// units as it is large.
int tail(Expander& e, int t, int scaled, bool is_of_normal) {
  // From here on it is less than half of the least number.
  const double end = (e.is_f32() ? 10.25 : 27.5) * (is_of_normal ? std::numbers::sqrt2 : 1);
  const int bounded = e.at_most(t, e.constant(end)), half = e.constant(0.5);
  const Pair square = product(e, bounded, bounded);
  if (!is_of_normal) return scaled_exp(e, e.neg(square.high), e.neg(square.low), scaled);
  const int minus_half = e.constant(-0.5);
  return scaled_exp(e, e.mul(square.high, minus_half), e.mul(square.low, minus_half), e.mul(scaled, half));
}

// 1/2 + x p(x x), of |x| < middle.
constexpr double middle = 0.7;
int middle_of_normal(Expander& e, int x) {
  const int square = e.mul(x, x);
  const int p =
      e.is_f32()
          ? e.polynomial(square, e.mul(square, square),
                         {0x1.988454p-2, -0x1.10586ep-4, 0x1.46d6dap-7, -0x1.370ea4p-10, 0x1.c3d3aap-14})
          : e.polynomial(square, e.mul(square, square),
                         {0x1.9884533d43651p-2, -0x1.1058377e2cedfp-4, 0x1.46d0429769083p-7, -0x1.37403f6b94177p-10,
                          0x1.e42b0d4961cc5p-14, -0x1.3ce8f8fc7ee6bp-17, 0x1.6589ad77e7fa6p-21, -0x1.620f8c4961849p-25,
                          0x1.3693ae2160edep-29, -0x1.b9d032604ee8ap-34});
  return e.fma(x, p, e.constant(0.5));
}

}  // namespace

int erfc(Expander& e, int x) {
  const int t = e.abs(x), square = e.mul(x, x);
  const int far = tail(e, t, scaled_complement(e, t), false);
  // 1 - x p(x x)
  const int p =
      e.is_f32()
          ? e.polynomial(square, e.mul(square, square),
                         {0x1.20dd74p+0, -0x1.81266ep-2, 0x1.cdfa98p-4, -0x1.b2f3b2p-6, 0x1.1d361cp-8})
          : e.polynomial(square, e.mul(square, square),
                         {0x1.20dd750429b6dp+0, -0x1.812746b0379e5p-2, 0x1.ce2f21a0429a7p-4, -0x1.b82ce31273948p-6,
                          0x1.565bcd0777eafp-8, -0x1.c02db13c5660dp-11, 0x1.f9a27551287fdp-14, -0x1.f4b60bdb555b3p-17,
                          0x1.b71d774a9e36bp-20, -0x1.37a785c486f39p-23});
  const int near = e.fma(e.neg(x), p, e.constant(1));
  const int other = e.select(e.less(x, e.constant(0)), e.sub(e.constant(2), far), far);
  return e.select(e.less(t, e.constant(0.5)), near, other);
}

int ndtr(Expander& e, int x) {
  const int t = e.abs(x);
  const int far = tail(e, t, scaled_complement(e, e.mul(t, e.constant(root_of_half))), true);
  const int other = e.select(e.less(x, e.constant(0)), far, e.sub(e.constant(1), far));
  return e.select(e.less(t, e.constant(middle)), middle_of_normal(e, x), other);
}

// Below 0, log(scaled / 2) - x x / 2; above, log(1 - tail) = log(w) + rest / w, w the difference as it is rounded; in the middle the logarithm of ndtr(x).
int log_ndtr(Expander& e, int x) {
  const int t = e.abs(x), zero = e.constant(0), one = e.constant(1), half = e.constant(0.5);
  const int scaled = scaled_complement(e, e.mul(t, e.constant(root_of_half))), far = tail(e, t, scaled, true);
  const int above = e.sub(one, far), rest = e.sub(e.sub(one, above), far);
  const int is_above = e.less(zero, x), is_middle = e.less(t, e.constant(middle));
  const int w = e.select(is_middle, middle_of_normal(e, x), e.select(is_above, above, e.mul(scaled, half)));
  const int square = e.neg(e.mul(e.mul(t, half), t));
  const int correction = e.select(is_middle, zero, e.select(is_above, e.div(rest, above), square));
  return e.select(e.equal(x, x), e.add(log_of_normal(e, w), correction), x);
}

}  // namespace hotloop::kernel::math
