// The inverse of the normal distribution function.
#include <array>
#include <numbers>
#include <span>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop {
namespace {

// ndtri and its derivative, which is 1 over the density there.
struct Quantile {
  Value value, slope;
};

// ndtri(p) / (2 p - 1) is a smooth function of w = -log(4 p (1 - p)), which has all digits of a small p in it, and ndtri(p) / sqrt(w) one of 1 / sqrt(w), down to the
// smallest p; so are 4 p (1 - p) / density and sqrt(w) min(p, 1 - p) / density. Coefficients, lowest first: scripts/fit_math.py.
namespace f32 {
// The bend is one of w; the polynomials' arguments are taken from the others.
constexpr double bend = 5, start_of_center = 2, start_of_tail = 0.25;
constexpr std::array center{0x1.f29aecp+0,  0x1.69b3ecp-2,   -0x1.6cd03cp-9, -0x1.39ac62p-9, 0x1.401c5ap-12,
                            0x1.6a5b38p-17, -0x1.cb5594p-18, 0x1.bf9d56p-22, 0x1.7d8e28p-24, -0x1.acb74ap-27};
constexpr std::array tail{0x1.5b899cp+0, -0x1.1f0514p-2, 0x1.d0b5bp-4,  0x1.913ebep-1,  -0x1.3be7a8p+0,
                          0x1.24a98ap+0, -0x1.36f898p+2, 0x1.38ea84p+1, -0x1.2b0beep+3, 0x1.6282e6p+6};
constexpr std::array center_slope{0x1.bfb59ap+0,  -0x1.09d6f2p-2, 0x1.669ee6p-5,   -0x1.98e47ap-8, 0x1.7197bcp-11,
                                  -0x1.fe9f3p-15, 0x1.1062bep-18, -0x1.17ba54p-22, 0x1.12da42p-26, 0x1.1f0e2ep-35};
constexpr std::array tail_slope{0x1.6d79e8p-1,  -0x1.d0c7d8p-6, -0x1.66e476p-2, -0x1.5bc7fp-3, 0x1.e4fd66p-1,
                                -0x1.a1b5d4p-1, 0x1.b15fbap+0,  -0x1.8fbaa8p-1, 0x1.fee166p+1, -0x1.4c74f4p+5};
}  // namespace f32

// Less a line of w and a constant, quotients.
namespace f64 {
constexpr double bend = 16, start_of_tail = 0.125, center_line[] = {91.0 / 64, 0.25}, tail_line = 181.0 / 128;
constexpr std::array center_p{-0x1.59367004ec7d2p-3,  0x1.9456326cb6d26p-5,   0x1.2dd3095d0015dp-6,
                              0x1.a1f0e530d6087p-9,   0x1.9c5323a3b138ep-11,  0x1.c041e3bc28a0dp-15,
                              0x1.c832533a03298p-18,  0x1.d7eb33680882bp-23,  -0x1.6c4ce2ff4fde4p-30,
                              -0x1.c21b2eedf248fp-31, -0x1.bd33871bf5395p-34, -0x1.a0a379a4939b2p-38,
                              -0x1.6e6de5dcf2793p-45};
constexpr std::array center_q{0x1p+0,
                              0x1.5d6c7fa0c0a2bp-3,
                              0x1.111da65c48795p-4,
                              0x1.24787be5bd5cap-7,
                              0x1.8d1d5f37d48cp-10,
                              0x1.3d64bdc1bab95p-13,
                              0x1.ce342500fa908p-17,
                              0x1.fe28772455efap-21,
                              0x1.a2eb9d62fb161p-25,
                              0x1.240f3b8936969p-29,
                              0x1.7a4e0704b03aep-35,
                              0x1.aa8b826c28374p-43};
constexpr std::array tail_p{-0x1.6171277b70be2p-6,  -0x1.2b42c280e6368p-2, 0x1.4b47f6055e538p+0,
                            0x1.5d4fa4f5282e5p+4,   -0x1.cc39cd3eaed7ap+6, -0x1.3290517146b94p+10,
                            0x1.a35818e2b85aep+11,  0x1.cba797d2a01e7p+14, -0x1.aec5a7ffc7769p+15,
                            -0x1.5365893ccee1ep+18, 0x1.2303570070969p+17, 0x1.288964dfb94a2p+19,
                            -0x1.bdd183ff9812cp+18};
constexpr std::array tail_q{0x1p+0,
                            0x1.8076465ec79f5p+0,
                            -0x1.7765192c6d338p+6,
                            0x1.67c03194ae905p+7,
                            0x1.1f2b2f8a0825dp+12,
                            -0x1.1b3055f652f23p+13,
                            -0x1.57c9b35944205p+16,
                            0x1.2e12e6c793062p+17,
                            0x1.6e827ddf74f95p+19,
                            0x1.198ba387039d4p+16,
                            -0x1.8a2dcd8d33de8p+16,
                            -0x1.56a5ee55dc566p+18};
}  // namespace f64

// One of two polynomials of x, by coefficients chosen one by one, so that what multiplies runs once.
Value either_polynomial(Value condition, Value x, std::span<const double> if_true, std::span<const double> if_false) {
  Value sum;
  for (std::size_t i = if_true.size(); i-- > 0;) {
    const Value coefficient = select(condition, like(x, if_true[i]), like(x, if_false[i]));
    sum = sum.defined() ? sum * x + coefficient : coefficient;
  }
  return sum;
}

Quantile quantile_of(Value p) {
  const bool is_single = p.dtype() == DType::F32;
  const Value is_above = greater(p, like(p, 0.5)), rest = 1.0 - p, both = 4.0 * p * rest, w = -log(both);
  const Value is_central = less(w, is_single ? f32::bend : f64::bend), root = sqrt(w), inverse = 1.0 / root;
  const Value by = select(is_central, 2.0 * p - 1.0, select(is_above, root, -root));
  if (!is_single) {
    const Value t = select(is_central, w, inverse - f64::start_of_tail);
    const Value line = select(is_central, w * f64::center_line[1] + f64::center_line[0], like(w, f64::tail_line));
    const Value y = by * (line + either_polynomial(is_central, t, f64::center_p, f64::tail_p) /
                                     either_polynomial(is_central, t, f64::center_q, f64::tail_q));
    return {y, (std::numbers::sqrt2 / std::numbers::inv_sqrtpi) * exp(0.5 * y * y)};
  }
  const Value t = select(is_central, w - f32::start_of_center, inverse - f32::start_of_tail);
  const Value y = by * either_polynomial(is_central, t, f32::center, f32::tail);
  // Not exp(y y / 2): in the tails the square of a rounded y has lost digits. At the ends 1 / root is 0, and the slope infinite.
  const Value over = select(is_central, like(p, 1), maximum(inverse, 0.0625));
  const Value under = abs(select(is_central, both, select(is_above, rest, p)));
  return {y, over * either_polynomial(is_central, t, f32::center_slope, f32::tail_slope) / under};
}

Quantile quantile(Value p) {
  const auto body = trace(
      [](std::span<const Value> v) {
        const Quantile q = quantile_of(v[0]);
        return std::vector<Value>{q.value, q.slope};
      },
      std::vector<ValueType>{p.type()}, "ndtri");
  const auto rule = [](std::span<const Value> v) {
    const Quantile q = quantile(v[0]);
    const Value tangent = q.slope * v[1];
    return std::vector<Value>{q.value, q.slope, tangent, q.value * q.slope * tangent};
  };
  const std::vector<Value> found = call_with_rule(body, std::vector<Value>{p}, "ndtri", rule);
  return {found[0], found[1]};
}

}  // namespace

Value ndtri(Value p) {
  ir::require_defined("ndtri", {&p, 1});
  if (!is_float(p.dtype()))
    throw UserError("ndtri", "the operand must be f32 or f64", p.type().str(), "cast(x, DType::F32)");
  return quantile(p).value;
}

}  // namespace hotloop
