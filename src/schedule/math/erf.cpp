// The error function. Coefficients: scripts/fit_math.py.
#include "schedule/math/expand.h"

namespace hotloop::kernel::math {

int erf(Expander& e, int x) {
  const bool f32 = e.is_f32();
  // Near 0, x + x q(x^2); beyond, 1 - 2^p(|x|), p = log2(erfc(x)), which is 1 from where |x| is bounded on. One polynomial of either.
  const int t = e.abs(x), is_near = e.less(t, e.constant(f32 ? 1.125 : 1.0625));
  const int of = e.select(is_near, e.mul(x, x), e.at_most(t, e.constant(f32 ? 4 : 5.95))), square = e.mul(of, of);
  const int p = f32 ? e.either_polynomial(is_near, of, square,
                                          {0x1.06eba8p-3, -0x1.81272ep-2, 0x1.ce2984p-4, -0x1.b7bbdcp-6, 0x1.522ec8p-8,
                                           -0x1.9726c4p-11, 0x1.2843d4p-14},
                                          {-0x1.769444p-8, -0x1.9b2a9p+0, -0x1.e7576cp-1, -0x1.f8612ep-4, 0x1.45ae2ep-6,
                                           -0x1.85eeacp-10})
                    : e.either_polynomial(
                          is_near, of, square,
                          {0x1.06eba8214db69p-3, -0x1.812746b0379e3p-2, 0x1.ce2f21a042925p-4, -0x1.b82ce3127b88cp-6,
                           0x1.565bcd0c59d9ap-8, -0x1.c02db39d6819dp-11, 0x1.f9a31b132b5b0p-14, -0x1.f4d165acca42cp-17,
                           0x1.b9d912d68b3bdp-20, -0x1.5eed4c47420b2p-23, 0x1.f5b42b1a83646p-27, -0x1.32a8e6342efaep-30,
                           0x1.ed0264781fb1ep-35},
                          {-0x1.22962a8805490p-19, -0x1.a0bd2aca7a150p+0, -0x1.d64ac600d4cc2p-1, -0x1.2f25432aba1cbp-3,
                           0x1.bc67dbcb2f9a0p-6, 0x1.f5de4903b4a4cp-11, -0x1.9ae0dd79ac8cfp-9, 0x1.6ffd4ea3f4daap-10,
                           -0x1.8998a51af481dp-12, 0x1.edc84a7973a0dp-15, -0x1.0e4a4e10cd315p-20,
                           -0x1.2de51561ecd5fp-19, 0x1.6cc18e945fdccp-21, -0x1.e038a7e8d597bp-24, 0x1.88609cef3fb53p-27,
                           -0x1.779ddb83d0f84p-31, 0x1.44a9583ae7f05p-36});
  const auto by = e.reduce(p, 1, 1, 0);
  const int r2 = e.mul(by.r, by.r);
  const int fraction =
      f32 ? e.polynomial(by.r, r2, {1, 0x1.62e42ap-1, 0x1.ebf9cp-3, 0x1.c6b6cp-5, 0x1.3ce94p-7, 0x1.5be7cep-10})
          : e.polynomial(by.r, r2,
                         {1, 0x1.62e42fefa3a12p-1, 0x1.ebfbdff82c432p-3, 0x1.c6b08d703e13ep-5, 0x1.3b2ab6fbd6bd7p-7,
                          0x1.5d87fe9b95034p-10, 0x1.4309126c3dac8p-13, 0x1.ffcb58bb6d9e5p-17, 0x1.62c1470e932efp-20,
                          0x1.b671bf4ba3b80p-24, 0x1.e3a9ffcff0822p-28});
  const int far = e.fma(e.neg(by.power), fraction, e.constant(1));
  return e.select(is_near, e.fma(x, p, x), e.copy_sign(far, x));
}

}  // namespace hotloop::kernel::math
