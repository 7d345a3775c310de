// The scalar operations of the kernel IR: what one element of an elementwise op computes.
#pragma once

#include <cstdint>
#include <string_view>

namespace hotloop::ir {

// Operand and result dtypes are equal unless a comment says otherwise. Integer arithmetic wraps; integer division by
// zero gives 0, its remainder the dividend. All bits of a result are fixed, but for the payload and sign of a NaN.
enum class ScalarOp : std::uint8_t {
  None,
  // unary
  // Sign is -1, 0 or 1, and NaN for NaN. Rint rounds halves to even.
  Neg, Abs, Sign, Floor, Ceil, Rint, Sqrt, Exp, Expm1, Log, Log1p, Sin, Cos, Tanh, Sigmoid, Erf, ErfInv,
  Erfc, Ndtr, LogNdtr,  // Ndtr is the normal distribution function
  Not,
  Cast,     // any dtype to any other; float to integer truncates and saturates, NaN gives 0; to bool is != 0
  Bitcast,  // between dtypes of one size
  Copy,
  // binary
  // Rem has the sign of the dividend. Max(a, b) is b if a < b or b is NaN, else a, so NaN if either is; Min alike.
  Add, Sub, Mul, Div, Rem, Pow, Min, Max,
  // Of floats, and no graph's: what the formulas of sin and cos (src/schedule/math) leave. FarAngle(x, near) is `near` where |x| <= far_angle(),
  // else x less its nearest multiple n of pi / 2, NaN if x is not finite; FarTurns(x, near) alike 1.5 * 2^52 (f32: 2^23) + n modulo 4.
  FarAngle, FarTurns,
  Ldexp,  // of floats, and no graph's: (x, n) is x 2^n, rounded once, of a normal x and a whole n from -2 to 2 times the exponent's bias
  // Of integers and bool. Shr is logical for u32, arithmetic for i32 and i64; amounts are taken modulo the width.
  And, Or, Xor, Shl, Shr,
  Eq, Ne, Lt, Le, Gt, Ge,  // result bool
  // ternary
  Select,  // bool, T, T
  FarRem,  // of floats, and no graph's: (x, y, near) is `near` where |x / y| < far_quotient(), else the remainder of x by y
  Random,  // of u32, and no graph's: (i, key0, key1) is the i-th word of a random stream (core/philox.h)
  Fma,     // a * b + c with one rounding; targets without fma multiply and add
};
inline constexpr int num_scalar_ops = static_cast<int>(ScalarOp::Fma) + 1;

// The greatest |x| whose multiple of pi / 2 a formula takes off.
constexpr double far_angle(bool is_f32) { return is_f32 ? 0x1p17 : 0x1p22; }
// From here on a quotient is not known to the last whole number.
constexpr double far_quotient(bool is_f32) { return is_f32 ? 0x1p24 : 0x1p53; }

std::string_view name_of(ScalarOp op);  // "add", "exp", ...
int num_operands(ScalarOp op);          // 0 for None

}  // namespace hotloop::ir
