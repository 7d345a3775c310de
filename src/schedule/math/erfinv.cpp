// The inverse of the error function. Coefficients: scripts/fit_math.py.
#include <limits>

#include "schedule/math/expand.h"

namespace hotloop::kernel::math {

// x (line(w) + P(w) / Q(w)) with w = -log(1 - x^2), of which erfinv(x) / x is a smooth function, at 0 too, that grows as its root: one quotient for
// all x, which is at most a seventh of the whole, so that its rounding counts little.
int erfinv(Expander& e, int x) {
  const bool f32 = e.is_f32();
  const int one = e.constant(1);
  const int rest = e.has_fma() ? e.fma(e.neg(x), x, one) : e.mul(e.sub(one, x), e.add(one, x));  // no digits cancel
  const int w = e.neg(log_of_normal(e, rest)), square = e.mul(w, w);
  const int p =
      f32 ? e.polynomial(
                w, square,
                {-0x1.24076p-5, 0x1.ecd7eep-6, 0x1.a8d77ep-7, -0x1.10da64p-11, 0x1.95af8ep-14, -0x1.d1576cp-17})
          : e.polynomial(
                w, square,
                {-0x1.0901db92c4255p-3, 0x1.ce0986f39aabcp-5, 0x1.b8c7f053ab481p-7, 0x1.efd5996f34c6bp-9,
                 0x1.97d422201e3a3p-11, 0x1.5774041457596p-14, 0x1.9bd9c26284285p-17, 0x1.78cfe7853eda8p-21,
                 0x1.41b53aecbf88ep-24, 0x1.1992982e3deaap-29, 0x1.69921efd93086p-33, -0x1.509f8b1989283p-39,
                 -0x1.8bd7916549277p-46, -0x1.0cace55e96a10p-46, -0x1.803f55ab97b24p-51, -0x1.647d4183f1d71p-59});
  const int q =
      f32 ? e.polynomial(w, square, {1, 0x1.37c47ep-4, 0x1.f225bep-6, 0x1.9a14f6p-10, 0x1.0f6704p-13, -0x1.0a34fcp-21})
          : e.polynomial(w, square,
                         {1, 0x1.32747a006a24bp-3, 0x1.2aa67ff94b008p-4, 0x1.1f3f4b5ac85cep-7, 0x1.fc520035ab533p-10,
                          0x1.7c40fe0f571f3p-13, 0x1.8b220af0e04acp-16, 0x1.bcf087a2dcfacp-20, 0x1.2bf80e9a2d2cfp-23,
                          0x1.f29434d3de963p-28, 0x1.b746496ce164bp-32, 0x1.e70f54796212bp-37, 0x1.1ab398c480c28p-41,
                          0x1.fdc5bd4c845eap-48, 0x1.3fe47d6612277p-56});
  const int start = e.add(e.constant(f32 ? 59.0 / 64 : 65.0 / 64), e.div(p, q));
  const int ratio = e.fma(e.constant(f32 ? 51.0 / 256 : 5.0 / 32), w, start);
  // What is no number or not finite is added: adding -0 changes nothing, and compilers of C make branches around a formula that is selected.
  const int t = e.abs(x);
  const int end = e.copy_sign(e.constant(std::numeric_limits<double>::infinity()), x);
  const int beyond = e.select(e.equal(t, one), end, e.constant(std::numeric_limits<double>::quiet_NaN()));
  return e.fma(x, ratio, e.select(e.less(t, one), e.constant(-0.0), beyond));
}

}  // namespace hotloop::kernel::math
