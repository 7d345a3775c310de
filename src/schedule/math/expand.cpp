#include "schedule/math/expand.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace hotloop::kernel::math {

std::optional<double> Expander::known(int reg) const {
  const Instr& instr = instrs_[static_cast<std::size_t>(reg)];
  if (instr.kind != Instr::Kind::Const || instr.dtype != dtype_) return std::nullopt;
  return is_f32() ? std::bit_cast<float>(static_cast<std::uint32_t>(instr.bits)) : std::bit_cast<double>(instr.bits);
}

int Expander::literal(DType dtype, std::uint64_t bits) {
  const auto [at, is_new] = constants_.try_emplace({dtype, bits}, static_cast<int>(instrs_.size()));
  if (is_new) instrs_.push_back(const_instr(dtype, bits));
  return at->second;
}

int Expander::push(ScalarOp op, DType dtype, int a, int b, int c) {
  instrs_.push_back(op_instr(op, dtype, a, b, c));
  return static_cast<int>(instrs_.size()) - 1;
}

int Expander::polynomial(int x, int square, std::span<const double> coefficients) {
  std::vector<int> terms;
  for (const double c : coefficients) terms.push_back(constant(c));
  return sum_of_powers(x, square, std::move(terms));
}

int Expander::either_polynomial(int condition, int x, int square, std::initializer_list<double> if_true,
                                std::initializer_list<double> if_false) {
  std::vector<int> terms;
  const auto coefficient = [&](std::initializer_list<double> of, std::size_t i) {
    return constant(i < of.size() ? of.begin()[i] : 0);
  };
  for (std::size_t i = 0; i < std::max(if_true.size(), if_false.size()); ++i)
    terms.push_back(select(condition, coefficient(if_true, i), coefficient(if_false, i)));
  return sum_of_powers(x, square, std::move(terms));
}

int Expander::sum_of_powers(int x, int square, std::vector<int> terms) {
  // terms[i] + terms[i+1] * power, for every other i; the last one may have no partner.
  const auto in_pairs = [&](int power) {
    std::vector<int> pairs;
    for (std::size_t i = 0; i < terms.size(); i += 2)
      pairs.push_back(i + 1 < terms.size() ? fma(terms[i + 1], power, terms[i]) : terms[i]);
    terms = std::move(pairs);
  };
  in_pairs(x);
  int power = square;
  if (terms.size() > 3) {
    in_pairs(square);
    power = mul(square, square);
  }
  int sum = terms.back();
  for (std::size_t i = terms.size() - 1; i-- > 0;) sum = fma(sum, power, terms[i]);
  return sum;
}

int Expander::scaled(int x, int exponent) {
  return from_bits(int_op(ScalarOp::Add, to_bits(x), integer(std::int64_t{exponent} << (is_f32() ? 23 : 52))));
}

int Expander::copy_sign(int magnitude, int sign) {
  const std::int64_t sign_bit = is_f32() ? INT32_MIN : INT64_MIN;
  const int bit = int_op(ScalarOp::And, to_bits(sign), integer(sign_bit));
  return from_bits(int_op(ScalarOp::Or, to_bits(magnitude), bit));
}

Expander::Reduction Expander::reduce(int x, double per_unit, double unit_high, double unit_low, int exponent_offset,
                                     double shift) {
  const int magic = constant(rounding() + exponent_bias() + exponent_offset);
  const int shifted =
      shift == 0 ? fma(x, constant(per_unit), magic) : add(fma(x, constant(per_unit), constant(shift)), magic);
  const int n = sub(shifted, magic);
  const int head = fma(n, constant(-unit_high), x);
  if (unit_low == 0) return {n, head, to_power(to_bits(shifted)), head, -1};
  const int minus_low = constant(-unit_low);
  return {n, fma(n, minus_low, head), to_power(to_bits(shifted)), head, minus_low};
}

std::pair<int, int> Expander::split_power(int n) {
  // Both magics leave a biased exponent: n + 2 * bias, less n / 2 + bias, is n - n / 2 + bias.
  const int whole = to_bits(add(n, constant(rounding() + 2 * exponent_bias())));
  const int half = to_bits(fma(n, constant(0.5), constant(rounding() + exponent_bias())));
  return {to_power(half), to_power(int_op(ScalarOp::Sub, whole, half))};
}

int Expander::times_power(int x, int n) {
  if (has_ldexp_) return op(ScalarOp::Ldexp, x, n);
  const auto [first, second] = split_power(n);
  return mul(mul(x, first), second);
}

int Expander::one_and_times_power(int t, int n, int factor) {
  const auto times_factor = [&](int x) { return factor < 0 ? x : mul(x, factor); };
  if (has_ldexp_ || !has_fma_) return times_power(times_factor(add(constant(1), t)), n);
  // One rounding, the same as that of 1 + t.
  const auto [first, second] = split_power(n);
  return mul(times_factor(fma(t, first, first)), second);
}

Pair product(Expander& e, int a, int b) {
  const int high = e.mul(a, b);
  if (e.has_fma()) return {high, e.fma(a, b, e.neg(high))};
  // Factors in halves, whose products are exact (Dekker 1971).
  const int upper_bits = e.integer(-(std::int64_t{1} << (e.is_f32() ? 12 : 27)));
  const auto halves = [&](int v) {
    const int upper = e.from_bits(e.int_op(ScalarOp::And, e.to_bits(v), upper_bits));
    return Pair{upper, e.sub(v, upper)};
  };
  const Pair u = halves(a), v = halves(b);
  const int rest = e.add(e.sub(e.mul(u.high, v.high), high), e.mul(u.high, v.low));
  return {high, e.add(e.add(rest, e.mul(u.low, v.high)), e.mul(u.low, v.low))};
}

int with_tail(Expander& e, const Expander::Reduction& by, std::initializer_list<double> list) {
  const std::span<const double> coefficients(list.begin(), list.size());
  // c[0] is added last: the rounding of a partial sum that holds it would count as much as that of g.
  const int square = e.mul(by.r, by.r), rest = e.polynomial(by.r, square, coefficients.subspan(1)),
            g = e.fma(rest, by.r, e.constant(coefficients[0]));
  return e.is_f32() ? e.fma(square, g, by.r) : e.add(by.r, e.fma(square, g, e.lost(by)));
}

}  // namespace hotloop::kernel::math
