// Writing instructions in terms of earlier ones, and the functions written so.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel::math {

// Appends instructions of one float dtype to a list; registers are positions in it. Equal constants share a register,
// so a list belongs to one part of a Map (its body, or what follows a reduction).
class Expander {
 public:
  Expander(std::vector<Instr>& instrs, const Target& target)
      : instrs_(instrs), has_fma_(target.has_fma), has_ldexp_(has_wide_vectors(target)) {}

  void begin(DType dtype) { dtype_ = dtype; }
  // Registers before the present end are no longer usable.
  void forget_constants() { constants_.clear(); }
  bool is_f32() const { return dtype_ == DType::F32; }

  int op(ScalarOp op, int a, int b = -1, int c = -1) { return push(op, dtype_, a, b, c); }
  int add(int a, int b) { return op(ScalarOp::Add, a, b); }
  int sub(int a, int b) { return op(ScalarOp::Sub, a, b); }
  int mul(int a, int b) { return op(ScalarOp::Mul, a, b); }
  int div(int a, int b) { return op(ScalarOp::Div, a, b); }
  int abs(int a) { return op(ScalarOp::Abs, a); }
  int neg(int a) { return op(ScalarOp::Neg, a); }
  // a * b + c, with one rounding where the target has it.
  int fma(int a, int b, int c) { return has_fma_ ? op(ScalarOp::Fma, a, b, c) : add(mul(a, b), c); }
  bool has_fma() const { return has_fma_; }

  int less(int a, int b) { return push(ScalarOp::Lt, DType::Bool, a, b); }
  int equal(int a, int b) { return push(ScalarOp::Eq, DType::Bool, a, b); }
  int compare(ScalarOp op, int a, int b) { return push(op, DType::Bool, a, b); }
  int both(int a, int b) { return push(ScalarOp::And, DType::Bool, a, b); }
  int cast(DType to, int a) { return push(ScalarOp::Cast, to, a); }
  int select(int condition, int a, int b) { return op(ScalarOp::Select, condition, a, b); }
  // The nearer of x and the bound, and NaN for NaN: one max or min instruction on x86.
  int at_least(int x, int bound) { return select(less(x, bound), bound, x); }
  int at_most(int x, int bound) { return select(less(bound, x), bound, x); }

  // What a register of the dtype begun always holds, if it is a constant.
  std::optional<double> known(int reg) const;
  int constant(double value) { return literal(dtype_, bits_of(value)); }
  int integer(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    return literal(int_dtype(), is_f32() ? bits & 0xffffffffu : bits);
  }
  // Integer instructions on the bits of a float.
  DType int_dtype() const { return is_f32() ? DType::I32 : DType::I64; }
  int to_bits(int a) { return push(ScalarOp::Bitcast, int_dtype(), a); }
  int from_bits(int a) { return push(ScalarOp::Bitcast, dtype_, a); }
  int int_op(ScalarOp op, int a, int b) { return push(op, int_dtype(), a, b); }
  int select_bits(int condition, int a, int b) { return push(ScalarOp::Select, int_dtype(), condition, a, b); }
  int int_to_float(int a) { return push(ScalarOp::Cast, dtype_, a); }
  // Adding this leaves the rounded number in the lowest bits.
  double rounding() const { return is_f32() ? 0x1.8p23 : 0x1.8p52; }
  // x * 2^exponent for an x in the normal range that stays there; what comes of NaN is not NaN.
  int scaled(int x, int exponent);
  // |magnitude| with the sign of `sign`.
  int copy_sign(int magnitude, int sign);

  // x = n * unit + r with integer n nearest to x * per_unit; power = 2^(n + exponent_offset). unit_high must have so few
  // bits that n * unit_high is exact (targets without fma need it), unless unit_low is 0: then r is what one fma leaves. With a shift n is nearest to
  // x * per_unit + shift.
  struct Reduction {
    int n, r, power;
    int head, minus_low;  // r = n * minus_low + head, rounded, where there is a unit_low
  };
  Reduction reduce(int x, double per_unit, double unit_high, double unit_low, int exponent_offset = 0,
                   double shift = 0);
  // What the rounding of r lost.
  int lost(const Reduction& by) { return fma(by.n, by.minus_low, sub(by.head, by.r)); }
  // x 2^n of an x in the normal range, rounded where it leaves that.
  int times_power(int x, int n);
  // The same of 1 + t, rounded, times a factor, if there is one.
  int one_and_times_power(int t, int n, int factor = -1);

  // c[0] + c[1] x + c[2] x^2 + ...: pairs c[i] + c[i+1] x side by side, and Horner in x^2 over them, in x^4 over pairs of pairs where there are
  // many. Half the latency of Horner in x (a chain of multiplications is what a recurrent step waits for), and no more instructions but x^4.
  int polynomial(int x, int square, std::span<const double> coefficients);
  int polynomial(int x, int square, std::initializer_list<double> coefficients) {
    return polynomial(x, square, std::span(coefficients.begin(), coefficients.size()));
  }
  // One of two polynomials, by coefficients chosen one by one, which the units that multiply do not wait for.
  int either_polynomial(int condition, int x, int square, std::initializer_list<double> if_true,
                        std::initializer_list<double> if_false);

 private:
  // The exponent's bias added to rounding() beforehand, the bits shifted into the exponent field are the power of two.
  int exponent_bias() const { return is_f32() ? 127 : 1023; }
  // 2^n in two factors, neither of which leaves the normal range.
  std::pair<int, int> split_power(int n);
  int to_power(int bits) { return from_bits(int_op(ScalarOp::Shl, bits, integer(is_f32() ? 23 : 52))); }
  std::uint64_t bits_of(double value) const {
    return is_f32() ? std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(value))}
                    : std::bit_cast<std::uint64_t>(value);
  }
  int literal(DType dtype, std::uint64_t bits);
  int sum_of_powers(int x, int square, std::vector<int> terms);
  int push(ScalarOp op, DType dtype, int a, int b = -1, int c = -1);

  std::vector<Instr>& instrs_;
  std::map<std::pair<DType, std::uint64_t>, int> constants_;
  bool has_fma_, has_ldexp_;
  DType dtype_ = DType::F32;
};

// A number as the sum of two, the second at most half a unit of the first one's last place.
struct Pair {
  int high, low;
};
Pair product(Expander& e, int a, int b);

// r + r^2 (c[0] + c[1] r + ...); in f64 with what the rounding of r lost, to stay within 2 ulp. Rather than Horner's last steps, whose error is
// twice as large.
int with_tail(Expander& e, const Expander::Reduction& by, std::initializer_list<double> coefficients);

// Each returns the register of f(x); x is of the dtype begun. Greatest errors in f32 over all 2^32 floats, in units of the last place of the
// exact result: exp 1.013, expm1 1.530, log 0.923, log1p 1.005, tanh 2.499, sigmoid 2.279, erf 1.382, erfinv 2.588, erfc 4.908, ndtr 5.806, sin 1.611, cos 1.585 (avx512;
// tests/unit/math_test.cpp bounds the others and f64 by samples).
int exp(Expander& e, int x);
// exp(high + low) * factor of a high within exp's range, and a low that is less than half a unit of its last place.
int scaled_exp(Expander& e, int high, int low, int factor);
int expm1(Expander& e, int x);
int tanh(Expander& e, int x);
int sigmoid(Expander& e, int x);
int erf(Expander& e, int x);
int erfc(Expander& e, int x);
int ndtr(Expander& e, int x);
int log_ndtr(Expander& e, int x);
int sin(Expander& e, int x);
int cos(Expander& e, int x);
int log(Expander& e, int x);
int log1p(Expander& e, int x);
// Of a positive number in the normal range; other numbers give any.
int log_of_normal(Expander& e, int x);
int erfinv(Expander& e, int x);
// Exact.
int rem(Expander& e, int x, int y);
// Wrong by at most 0.502 in f32.
int pow(Expander& e, int x, int y);

}  // namespace hotloop::kernel::math
