#include "backends/render/dialect.h"

#include <string>

#include "backends/far_angles.h"
#include "core/print_number.h"
#include "hotloop/error.h"

namespace hotloop::render {
namespace {

using enum ir::ScalarOp;

constexpr std::string_view functions =
    R"(#define HL_ORDER(T, D)                                                              \
  static inline T hl_max_##D(T a, T b) { return ((a < b) | (b != b)) ? b : a; }     \
  static inline T hl_min_##D(T a, T b) { return ((b < a) | (b != b)) ? b : a; }
HL_ORDER(float, f32)
HL_ORDER(double, f64)
HL_ORDER(int32_t, i32)
HL_ORDER(uint32_t, u32)
HL_ORDER(int64_t, i64)

#define HL_SIGN(T, D) \
  static inline T hl_sign_##D(T a) { return a > 0 ? 1 : a < 0 ? -1 : a; }
HL_SIGN(float, f32)
HL_SIGN(double, f64)
HL_SIGN(int32_t, i32)
HL_SIGN(int64_t, i64)
static inline uint32_t hl_sign_u32(uint32_t a) { return a > 0; }

// Results beyond the range wrap: computed without a sign, since C leaves it undefined with one.
#define HL_WRAPPING(T, U, D)                                                                             \
  static inline T hl_neg_##D(T a) { return (T)((U)0 - (U)a); }                                          \
  static inline T hl_add_##D(T a, T b) { return (T)((U)a + (U)b); }                                     \
  static inline T hl_sub_##D(T a, T b) { return (T)((U)a - (U)b); }                                     \
  static inline T hl_mul_##D(T a, T b) { return (T)((U)a * (U)b); }                                     \
  static inline T hl_shl_##D(T a, T b) { return (T)((U)a << (b & (T)(8 * sizeof(T) - 1))); }
HL_WRAPPING(int32_t, uint32_t, i32)
HL_WRAPPING(uint32_t, uint32_t, u32)
HL_WRAPPING(int64_t, uint64_t, i64)
static inline int32_t hl_abs_i32(int32_t a) { return a < 0 ? hl_neg_i32(a) : a; }
static inline uint32_t hl_abs_u32(uint32_t a) { return a; }
static inline int64_t hl_abs_i64(int64_t a) { return a < 0 ? hl_neg_i64(a) : a; }

#define HL_SIGNED_DIVISION(T, D)                                                                       \
  static inline T hl_div_##D(T a, T b) { return b == 0 ? 0 : b == -1 ? hl_neg_##D(a) : a / b; }         \
  static inline T hl_rem_##D(T a, T b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
HL_SIGNED_DIVISION(int32_t, i32)
HL_SIGNED_DIVISION(int64_t, i64)
static inline uint32_t hl_div_u32(uint32_t a, uint32_t b) { return b == 0 ? 0 : a / b; }
static inline uint32_t hl_rem_u32(uint32_t a, uint32_t b) { return b == 0 ? a : a % b; }

#define HL_BITCAST(A, DA, B, DB) \
  static inline B hl_bitcast_##DA##_##DB(A a) { B b; memcpy(&b, &a, sizeof b); return b; }
HL_BITCAST(float, f32, int32_t, i32)
HL_BITCAST(float, f32, uint32_t, u32)
HL_BITCAST(int32_t, i32, float, f32)
HL_BITCAST(uint32_t, u32, float, f32)
HL_BITCAST(double, f64, int64_t, i64)
HL_BITCAST(int64_t, i64, double, f64)
HL_BITCAST(double, f64, uint64_t, u64)
HL_BITCAST(uint64_t, u64, double, f64)
HL_BITCAST(int32_t, i32, uint32_t, u32)
HL_BITCAST(uint32_t, u32, int32_t, i32)

// x 2^n by two powers of two in the normal range: n and n / 2 with the exponent's bias, from the lowest bits of a sum.
#define HL_LDEXP(F, DF, I, DI, ROUNDING, BIAS, DIGITS)                                                        \
  static inline F hl_ldexp_##DF(F x, F n) {                                                                   \
    const I whole = hl_bitcast_##DF##_##DI(n + (ROUNDING + 2 * BIAS));                                        \
    const I half = hl_bitcast_##DF##_##DI(hl_fma_##DF(n, (F)0.5, ROUNDING + BIAS));                           \
    return x * hl_bitcast_##DI##_##DF(half << DIGITS) * hl_bitcast_##DI##_##DF((whole - half) << DIGITS);     \
  }
HL_LDEXP(float, f32, uint32_t, u32, 0x1.8p23f, 127, 23)
HL_LDEXP(double, f64, uint64_t, u64, 0x1.8p52, 1023, 52)

#define HL_SATURATE(F, DF, T, DT, LOW, HIGH, AFTER_HIGH)                                  \
  static inline T hl_cast_##DF##_##DT(F x) {                                              \
    return x >= AFTER_HIGH ? HIGH : x >= (F)LOW ? (T)x : x != x ? (T)0 : LOW;             \
  }
HL_SATURATE(float, f32, int32_t, i32, INT32_MIN, INT32_MAX, 0x1p31f)
HL_SATURATE(double, f64, int32_t, i32, INT32_MIN, INT32_MAX, 0x1p31)
HL_SATURATE(float, f32, uint32_t, u32, 0u, UINT32_MAX, 0x1p32f)
HL_SATURATE(double, f64, uint32_t, u32, 0u, UINT32_MAX, 0x1p32)
HL_SATURATE(float, f32, int64_t, i64, INT64_MIN, INT64_MAX, 0x1p63f)
HL_SATURATE(double, f64, int64_t, i64, INT64_MIN, INT64_MAX, 0x1p63)

// x less its nearest multiple n of pi / 2, or n: from as many bits of 1 / pi as x says (Payne and Hanek 1983).
static inline double hl_far(double x, bool wants_turns, double rounding) {
  typedef hl_wide wide;
  static const uint64_t inverse_pi[] = {$INVERSE_PI};
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint64_t exponent = bits >> 52 & 0x7ff, m = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
  if (exponent == 0x7ff) return x - x;
  const uint64_t* word = inverse_pi + ((exponent - $FIRST) >> 6);
  const int shift = (int)((exponent - $FIRST) & 63);
  uint64_t p[3];
  for (int i = 0; i < 3; ++i) p[i] = shift ? word[i] << shift | word[i + 1] >> (64 - shift) : word[i];
  // |x| 2 / pi modulo 4, of 192 bits two before the point.
  const wide low = (wide)m * p[2], middle = (wide)m * p[1] + (uint64_t)(low >> 64);
  const uint64_t r2 = (uint64_t)low, r1 = (uint64_t)middle, r0 = m * p[0] + (uint64_t)(middle >> 64);
  uint64_t head = r0 << 2 | r1 >> 62, tail = r1 << 2 | r2 >> 62;
  const uint64_t folded = head >> 63 ? ~(uint64_t)0 : 0;  // beyond a half: its distance from 1
  if (wants_turns) {
    const uint64_t n = (r0 >> 62) - folded;
    return rounding + (double)((bits >> 63 ? 0 - n : n) & 3);
  }
  head ^= folded;
  tail ^= folded;
  const int zeros = hl_clz(head);
  if (zeros) head = head << zeros | tail >> (64 - zeros);
  const uint64_t product = (uint64_t)((wide)head * $PI >> 64);
  const uint64_t power = (uint64_t)(1023 - 62 - zeros) << 52;
  double y = (double)(int64_t)(product >> 1 | (product & 1)), scale;
  memcpy(&scale, &power, sizeof scale);
  y *= scale;
  return (folded ^ bits) >> 63 ? -y : y;
}
#define HL_FAR(T, D, FAR, ROUNDING)                                                                    \
  static inline T hl_far_angle_##D(T x, T near) {                                                      \
    return HL_LIKELY(hl_fabs_##D(x) <= FAR) ? near : (T)hl_far(x, false, ROUNDING);          \
  }                                                                                                    \
  static inline T hl_far_turns_##D(T x, T near) {                                                      \
    return HL_LIKELY(hl_fabs_##D(x) <= FAR) ? near : (T)hl_far(x, true, ROUNDING);           \
  }
// The remainder of any two numbers: long division, 11 bits of the quotient at a time.
static inline double hl_far_rem(double x, double y) {
  uint64_t a, b;
  memcpy(&a, &x, sizeof a);
  memcpy(&b, &y, sizeof b);
  const uint64_t sign = a >> 63 << 63, infinity = (uint64_t)0x7ff << 52, one = (uint64_t)1 << 52;
  a = a << 1 >> 1;
  b = b << 1 >> 1;
  if (y == 0 || a >= infinity || b > infinity) return hl_bitcast_i64_f64(INT64_C(0x7ff8000000000000));
  const uint64_t low = b < one ? 1 : b >> 52, divisor = (b & (one - 1)) | (b < one ? 0 : one);
  uint64_t bits = (a < one ? 1 : a >> 52) - low, rest = ((a & (one - 1)) | (a < one ? 0 : one)) % divisor;
  while (bits > 0) {
    const uint64_t step = bits < 11 ? bits : 11;
    rest = (rest << step) % divisor;
    bits -= step;
  }
  const uint64_t power = (low + 2) << 52;  // rest 2^(low - 1075), by two factors within the range
  double scale, result;
  memcpy(&scale, &power, sizeof scale);
  result = (double)rest * 0x1p-54 * scale;
  memcpy(&a, &result, sizeof a);
  a |= sign;
  memcpy(&result, &a, sizeof result);
  return result;
}
static inline float hl_far_rem_f32(float x, float y, float near) {
  return HL_LIKELY(hl_fabs_f32(x) / hl_fabs_f32(y) < $FARQ_F32) ? near : (float)hl_far_rem(x, y);
}
static inline double hl_far_rem_f64(double x, double y, double near) {
  return HL_LIKELY(hl_fabs_f64(x) / hl_fabs_f64(y) < $FARQ_F64) ? near : hl_far_rem(x, y);
}
HL_FAR(float, f32, $FAR_F32, 0x1.8p23)
HL_FAR(double, f64, $FAR_F64, 0x1.8p52)
// Philox2x32-10 (Salmon et al. 2011).
static inline uint32_t hl_random(uint32_t i, uint32_t key, uint32_t counter1) {
  uint32_t counter0 = i >> 1;
HL_UNROLL(10)
  for (int round = 0; round < 10; ++round) {
    const uint64_t product = (uint64_t)0xD256D193u * counter0;
    counter0 = (uint32_t)(product >> 32) ^ key ^ counter1;
    counter1 = (uint32_t)product;
    key += 0x9E3779B9u;
  }
  return i & 1 ? counter1 : counter0;
}

)";

}  // namespace

std::string common_functions() {
  const auto literal = [](std::uint64_t bits) { return "UINT64_C(" + std::to_string(bits) + ")"; };
  std::string words;
  for (const std::uint64_t word : backends::inverse_pi) words += (words.empty() ? "" : ", ") + literal(word);
  std::string text(functions);
  const auto fill_in = [&](std::string_view name, const std::string& value) {
    for (std::size_t at; (at = text.find(name)) != std::string::npos;) text.replace(at, name.size(), value);
  };
  fill_in("$INVERSE_PI", words);
  fill_in("$FIRST", std::to_string(backends::first_exponent));
  fill_in("$PI", literal(backends::pi_bits));
  fill_in("$FAR_F32", print_hex(ir::far_angle(true)) + "f");
  fill_in("$FAR_F64", print_hex(ir::far_angle(false)));
  fill_in("$FARQ_F32", print_hex(ir::far_quotient(true)) + "f");
  fill_in("$FARQ_F64", print_hex(ir::far_quotient(false)));
  return text;
}

const Spelling& Dialect::spelling(ir::ScalarOp op) const {
  for (const Spelling& s : spellings) {
    if (s.op == op) return s;
  }
  throw InternalError(__FILE__, __LINE__, std::string(name) + " cannot spell " + std::string(ir::name_of(op)));
}

const std::vector<Spelling>& common_spellings() {
  static const std::vector<Spelling> spellings{
      {Neg, "-$a", "hl_neg_$D($a)", ""},
      {Abs, "hl_fabs_$D($a)", "hl_abs_$D($a)", "$a"},
      {Sign, "hl_sign_$D($a)", "hl_sign_$D($a)", "$a"},
      {Floor, "hl_floor_$D($a)", "$a", "$a"},
      {Ceil, "hl_ceil_$D($a)", "$a", "$a"},
      {Rint, "hl_rint_$D($a)", "$a", "$a"},
      {Sqrt, "hl_sqrt_$D($a)", "", ""},
      {Not, "", "~$a", "!$a"},
      {Copy, "$a", "$a", "$a"},
      {Add, "$a + $b", "hl_add_$D($a, $b)", ""},
      {Sub, "$a - $b", "hl_sub_$D($a, $b)", ""},
      {Mul, "$a * $b", "hl_mul_$D($a, $b)", ""},
      {Div, "$a / $b", "hl_div_$D($a, $b)", ""},
      {Rem, "", "hl_rem_$D($a, $b)", ""},
      {FarAngle, "hl_far_angle_$D($a, $b)", "", ""},
      {FarTurns, "hl_far_turns_$D($a, $b)", "", ""},
      {Ldexp, "hl_ldexp_$D($a, $b)", "", ""},
      {Min, "hl_min_$D($a, $b)", "hl_min_$D($a, $b)", "$a & $b"},
      {Max, "hl_max_$D($a, $b)", "hl_max_$D($a, $b)", "$a | $b"},
      {And, "", "$a & $b", "$a & $b"},
      {Or, "", "$a | $b", "$a | $b"},
      {Xor, "", "$a ^ $b", "$a ^ $b"},
      {Shl, "", "hl_shl_$D($a, $b)", ""},
      {Shr, "", "$a >> ($b & (int)(8 * sizeof($T) - 1))", ""},
      {Eq, "$a == $b", "$a == $b", "$a == $b"},
      {Ne, "$a != $b", "$a != $b", "$a != $b"},
      {Lt, "$a < $b", "$a < $b", "$a < $b"},
      {Le, "$a <= $b", "$a <= $b", "$a <= $b"},
      {Gt, "$a > $b", "$a > $b", "$a > $b"},
      {Ge, "$a >= $b", "$a >= $b", "$a >= $b"},
      {Select, "$a ? $b : $c", "$a ? $b : $c", "$a ? $b : $c"},
      {FarRem, "hl_far_rem_$D($a, $b, $c)", "", ""},
      {Random, "", "hl_random($a, $b, $c)", ""},
      {Fma, "hl_fma_$D($a, $b, $c)", "", ""},
  };
  return spellings;
}

}  // namespace hotloop::render
