// sin and cos of the angle that is left when the nearest multiple of pi / 2 is taken off. Coefficients: scripts/fit_math.py.
#include "schedule/math/expand.h"

namespace hotloop::kernel::math {
namespace {

struct Angle {
  int turns;  // a float whose last two bits count the quarter turns
  int rest;   // in [-pi / 4, pi / 4]
};

// Of |x| up to ir::far_angle(): pi / 2 in parts so short that no bit is lost before x is small. They are rounded down, so that a zero keeps its sign.
Angle near_angle(Expander& e, int x) {
  const int magic = e.constant(e.rounding());
  const int turns = e.fma(x, e.constant(0x1.45f306dc9c883p-1), magic), multiple = e.sub(turns, magic);
  int rest = x;
  const auto take_off = [&](std::initializer_list<double> parts) {
    for (const double part : parts) rest = e.fma(multiple, e.constant(-part), rest);
  };
  if (e.is_f32()) {
    take_off({0x1.921fb4p+0, 0x1.4442dp-24, 0x1.846988p-48});
  } else if (e.has_fma()) {
    take_off({0x1.921fb54442d18p+0, 0x1.1a62633145c06p-54, 0x1.c1cd129024e08p-107});
  } else {  // products must be exact
    take_off({0x1.921fb544p+0, 0x1.0b4611a4p-34, 0x1.13198a2cp-65, 0x1.01b839a25204ap-96});
  }
  return {turns, rest};
}

// sin(x + quarter pi / 2)
int sine(Expander& e, int x, int quarter) {
  const bool f32 = e.is_f32(), by_f64 = f32 && !e.has_fma();
  if (by_f64) e.begin(DType::F64);
  const int wide = by_f64 ? e.cast(DType::F64, x) : x;
  const Angle near = near_angle(e, wide);
  const int r = e.op(ScalarOp::FarAngle, wide, near.rest);
  int turns = e.to_bits(e.op(ScalarOp::FarTurns, wide, near.turns));
  int rest = r;
  if (by_f64) {
    turns = e.cast(DType::I32, turns);
    e.begin(DType::F32);
    rest = e.cast(DType::F32, r);
  }
  if (quarter != 0) turns = e.int_op(ScalarOp::Add, turns, e.integer(quarter));
  const int one = e.constant(1), s = e.mul(rest, rest), s2 = e.mul(s, s);
  const int is_odd = e.compare(ScalarOp::Ne, e.int_op(ScalarOp::And, turns, e.integer(1)), e.integer(0));
  // cos(rest) = 1 + w or sin(rest) = rest + rest w, w = s (c[0] + c[1] s + ...), and the least normal number more, so that -0 stays what it is.
  const int p = f32 ? e.either_polynomial(is_odd, s, s2, {-0.5, 0x1.55554ap-5, -0x1.6c0c22p-10, 0x1.99e526p-16},
                                          {-0x1.555544p-3, 0x1.1106dp-7, -0x1.992242p-13})
                    : e.either_polynomial(is_odd, s, s2,
                                          {-0.5, 0x1.555555555554bp-5, -0x1.6c16c16c14f8fp-10, 0x1.a01a019c84244p-16,
                                           -0x1.27e4f7eaa8ff0p-22, 0x1.1ee9d7a3cda11p-29, -0x1.8fa491ea173acp-37},
                                          {-0x1.5555555555548p-3, 0x1.111111110f7cdp-7, -0x1.a01a019bfd9c8p-13,
                                           0x1.71de356796a83p-19, -0x1.ae5e5a680aab9p-26, 0x1.5d8fc6f177663p-33});
  const int w = e.fma(s, p, e.constant(f32 ? 0x1p-126 : 0x1p-1022)), factor = e.select(is_odd, one, rest);
  const int half_turns = e.int_op(ScalarOp::And, turns, e.integer(2));
  const int sign = e.int_op(ScalarOp::Shl, half_turns, e.integer(f32 ? 30 : 62));
  return e.from_bits(e.int_op(ScalarOp::Xor, e.to_bits(e.fma(factor, w, factor)), sign));
}

}  // namespace

int sin(Expander& e, int x) { return sine(e, x, 0); }
int cos(Expander& e, int x) { return sine(e, x, 1); }

}  // namespace hotloop::kernel::math
