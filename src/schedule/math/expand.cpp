#include "schedule/math/expand.h"

#include <iterator>

namespace hotloop::kernel::math {

int Expander::literal(DType dtype, std::uint64_t bits) {
  const auto [at, is_new] = constants_.try_emplace({dtype, bits}, static_cast<int>(instrs_.size()));
  if (is_new) instrs_.push_back(const_instr(dtype, bits));
  return at->second;
}

int Expander::push(ScalarOp op, DType dtype, int a, int b, int c) {
  instrs_.push_back(op_instr(op, dtype, a, b, c));
  return static_cast<int>(instrs_.size()) - 1;
}

int Expander::polynomial(int x, std::initializer_list<double> coefficients) {
  auto c = std::rbegin(coefficients);
  int sum = constant(*c);
  while (++c != std::rend(coefficients)) sum = fma(sum, x, constant(*c));
  return sum;
}

int Expander::copy_sign(int magnitude, int sign) {
  const std::int64_t sign_bit = is_f32() ? INT32_MIN : INT64_MIN;
  const int bit = int_op(ScalarOp::And, to_bits(sign), integer(sign_bit));
  return from_bits(int_op(ScalarOp::Or, to_bits(magnitude), bit));
}

Expander::Reduction Expander::reduce(int x, double per_unit, double unit_high, double unit_low, int exponent_offset) {
  const int magic = constant(rounding() + exponent_bias() + exponent_offset);
  const int shifted = fma(x, constant(per_unit), magic);
  const int n = sub(shifted, magic);
  const int head = fma(n, constant(-unit_high), x), minus_low = constant(-unit_low);
  return {n, fma(n, minus_low, head), to_power(to_bits(shifted)), head, minus_low};
}

std::pair<int, int> Expander::split_power(int n) {
  // Both magics leave a biased exponent: n + 2 * bias, less n / 2 + bias, is n - n / 2 + bias.
  const int whole = to_bits(add(n, constant(rounding() + 2 * exponent_bias())));
  const int half = to_bits(fma(n, constant(0.5), constant(rounding() + exponent_bias())));
  return {to_power(half), to_power(int_op(ScalarOp::Sub, whole, half))};
}

int add_tail(Expander& e, const Expander::Reduction& by, int g) {
  const int square = e.mul(by.r, by.r);
  return e.is_f32() ? e.fma(square, g, by.r) : e.add(by.r, e.fma(square, g, e.lost(by)));
}

}  // namespace hotloop::kernel::math
