// The scalar operations of the kernel IR: what one element of an elementwise op computes.
#pragma once

#include <cstdint>
#include <string_view>

namespace hotloop::ir {

// Operand and result dtypes are equal unless a comment says otherwise. Integer arithmetic wraps.
enum class ScalarOp : std::uint8_t {
  None,
  // unary
  Neg, Abs, Sign, Floor, Ceil, Rint, Sqrt, Exp, Expm1, Log, Log1p, Sin, Cos, Tanh, Sigmoid, Erf, Not,
  Cast,     // any dtype to any other; float to integer truncates
  Bitcast,  // between dtypes of one size
  Copy,
  // binary
  Add, Sub, Mul, Div, Rem, Pow, Min, Max,  // Min and Max give NaN if either operand is NaN
  And, Or, Xor, Shl, Shr,                  // integers and bool; Shr is logical for u32, arithmetic for i32 and i64
  Eq, Ne, Lt, Le, Gt, Ge,                  // result bool
  // ternary
  Select,  // bool, T, T
  Fma,     // a * b + c with one rounding
};
inline constexpr int num_scalar_ops = static_cast<int>(ScalarOp::Fma) + 1;

std::string_view name_of(ScalarOp op);  // "add", "exp", ...
int num_operands(ScalarOp op);          // 0 for None

}  // namespace hotloop::ir
