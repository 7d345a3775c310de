// The accuracy that src/schedule/math states, measured through the C renderer against libm.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <random>

#include "backends/backend.h"
#include "kernel_builder.h"
#include "schedule/lower_math.h"

namespace hotloop::kernel {
namespace {

constexpr std::int64_t chunk = 1 << 16;
constexpr float infinity = std::numeric_limits<float>::infinity();

// y = op(x) over `chunk` elements.
Program elementwise(ScalarOp op, DType dtype, const Target& target) {
  ProgramBuilder builder(target);
  const int x = builder.argument(dtype, chunk), y = builder.result(dtype, chunk);
  const Var i = builder.var("i");
  MapBuilder map({{i, {chunk, -1}}}, 1, 0);
  map.store(dtype, at(y, Affine::of(i)), map.op(op, dtype, map.load(dtype, at(x, Affine::of(i)))));
  Program program = builder.build();
  program.body.push_back({Single{{{map.build()}}}});
  return program;
}

class Function {
 public:
  Function(ScalarOp op, DType dtype, const Target& target = host_target())
      : program_(elementwise(op, dtype, target)), x_(dtype, {chunk}), y_({Array(dtype, {chunk})}) {
    verify(program_);
    lower_math(program_);
    verify(program_);
    kernel_ = compile_c(program_);
  }
  template <class T> std::span<T> inputs() { return x_.data<T>(); }
  template <class T> std::span<const T> run() {
    run_kernel(program_, kernel_->function(), {x_}, y_);
    return std::as_const(y_[0]).data<T>();
  }
  template <class T> T operator()(T x) {
    for (T& v : inputs<T>()) v = x;
    return run<T>()[0];
  }

 private:
  Program program_;
  std::unique_ptr<CompiledKernel> kernel_;
  Array x_;
  std::vector<Array> y_;
};

struct Case {
  ScalarOp op;
  double (*f64)(double);
  long double (*f80)(long double);
  double max_ulp_f32, max_ulp_f64;
};
double sigmoid_f64(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
long double sigmoid_f80(long double x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }

// Halley's method, from an estimate good to 0.002 (Winitzki 2008).
template <class T> T inverse_of_erf(T x, int steps) {
  if (!(std::fabs(x) < 1)) return std::fabs(x) == 1 ? x * std::numeric_limits<T>::infinity() : NAN;
  if (x == 0) return x;
  const T of = std::fabs(x), two_over_root_pi = T(1.128379167095512573896158903121545172L);
  const bool is_far = of > T(0.5L);
  const T w = std::log1p(-of * of), a = T(0.147L), half = T(4.330746750799873L) + w / 2;
  T y = is_far ? std::sqrt(std::sqrt(half * half - w / a) - half) : of / two_over_root_pi;
  for (int i = 0; i < steps; ++i) {
    const T step = (is_far ? (1 - of) - std::erfc(y) : std::erf(y) - of) / (two_over_root_pi * std::exp(-y * y));
    y -= step / (1 + y * step);
  }
  return std::copysign(y, x);
}
double erfinv_f64(double x) { return inverse_of_erf(x, 3); }
long double erfinv_f80(long double x) { return inverse_of_erf(x, 4); }

// erfc(-x / sqrt(2)) / 2, with what the rounding of its argument loses: erfc(z + d) = erfc(z) - 2 d exp(-z z) / sqrt(pi).
long double ndtr_f80(long double x) {
  constexpr long double high = 0xb.504f333f9de6484p-4L, low = 0x1.65f626cdd52afa7cp-66L;  // sqrt(1/2)
  const long double z = -x * high;
  if (!(std::fabs(z) < 120)) return erfcl(z) / 2;
  const long double d = fmal(-x, high, -z) - x * low;
  return (erfcl(z) - 2 * std::numbers::inv_sqrtpi_v<long double> * d * expl(-z * z)) / 2;
}
double ndtr_f64(double x) { return static_cast<double>(ndtr_f80(static_cast<long double>(x))); }
long double log_ndtr_f80(long double x) {
  if (x > 0) return log1pl(-ndtr_f80(-x));
  if (x > -100) return logl(ndtr_f80(x));
  if (!(x > -1e300L)) return std::isnan(x) ? x : -x * x / 2;
  long double fraction = -x;  // Laplace's
  for (int i = 30; i > 0; --i) fraction = -x + i / fraction;
  return -x * x / 2 - logl(fraction * 2.506628274631000502415765284811045253L);
}
double log_ndtr_f64(double x) { return static_cast<double>(log_ndtr_f80(static_cast<long double>(x))); }

// In f32 the greatest errors over all floats (HOTLOOP_EXHAUSTIVE=1, avx512): exp 1.013, expm1 1.530, log 0.923, log1p 1.005, tanh 2.499, sigmoid 2.279, erf 1.382,
// sin 1.611, cos 1.585, erfinv 2.588 (by the residual of erf in f64).
// In f64 those of a hundred times the samples that are drawn here (HOTLOOP_EXHAUSTIVE=1): exp 0.893, expm1 1.612, log 0.916, log1p 0.930, tanh 2.788, sigmoid 2.342,
// erf 1.490, sin 1.634, cos 1.597. In f32 over all floats erfc 4.908, ndtr 5.806.
std::vector<Case> cases() {
  return {{ScalarOp::Exp, [](double x) { return std::exp(x); }, expl, 1.02, 1.0},
          {ScalarOp::Expm1, [](double x) { return std::expm1(x); }, expm1l, 1.6, 1.62},
          {ScalarOp::Log, [](double x) { return std::log(x); }, logl, 1.0, 1.0},
          {ScalarOp::Log1p, [](double x) { return std::log1p(x); }, log1pl, 1.01, 1.0},
          {ScalarOp::Tanh, [](double x) { return std::tanh(x); }, tanhl, 2.51, 2.8},
          {ScalarOp::Sigmoid, sigmoid_f64, sigmoid_f80, 2.28, 2.36},
          {ScalarOp::Erf, [](double x) { return std::erf(x); }, erfl, 1.39, 1.6},
          {ScalarOp::ErfInv, erfinv_f64, erfinv_f80, 2.6, 2.8},
          {ScalarOp::Erfc, [](double x) { return std::erfc(x); }, erfcl, 5.0, 5.0},
          {ScalarOp::Ndtr, ndtr_f64, ndtr_f80, 6.0, 5.0},
          {ScalarOp::LogNdtr, log_ndtr_f64, log_ndtr_f80, 6.0, 6.0},
          {ScalarOp::Sin, [](double x) { return std::sin(x); }, sinl, 1.62, 1.65},
          {ScalarOp::Cos, [](double x) { return std::cos(x); }, cosl, 1.62, 1.65}};
}

class MathTest : public testing::TestWithParam<Case> {};
std::string name_of_case(const testing::TestParamInfo<Case>& info) { return std::string(ir::name_of(info.param.op)); }
INSTANTIATE_TEST_SUITE_P(All, MathTest, testing::ValuesIn(cases()), name_of_case);

double ulp_f32(double y) {
  const auto spacing = static_cast<double>(std::nextafter(std::fabs(static_cast<float>(y)), infinity)) -
                       static_cast<double>(std::fabs(static_cast<float>(y)));
  return std::isfinite(spacing) ? spacing : 0x1p104;
}

// Error in units of the last place of the reference; infinity and NaN must agree exactly.
double error_f32(float got, double want) {
  const auto rounded = static_cast<float>(want);
  if (std::isnan(got) || std::isnan(rounded)) return std::isnan(got) && std::isnan(rounded) ? 0 : HUGE_VAL;
  if (std::isinf(got) || std::isinf(rounded)) return got == rounded ? 0 : HUGE_VAL;
  return std::fabs(static_cast<double>(got) - want) / ulp_f32(want);
}
double error_f64(double got, long double want) {
  const auto rounded = static_cast<double>(want);
  if (std::isnan(got) || std::isnan(rounded)) return std::isnan(got) && std::isnan(rounded) ? 0 : HUGE_VAL;
  if (std::isinf(got) || std::isinf(rounded)) return got == rounded ? 0 : HUGE_VAL;
  const double size = std::fabs(rounded);
  const double spacing = size == std::numeric_limits<double>::max() ? 0x1p971 : std::nextafter(size, HUGE_VAL) - size;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / static_cast<long double>(spacing));
}

struct Worst {
  double ulp = -1, x = 0, got = 0;
  double least = HUGE_VAL, greatest = -HUGE_VAL;  // of the results
};

Worst sweep_f32(Function& function, double (*reference)(double), std::uint64_t first, std::uint64_t last,
                std::uint64_t stride) {
  Worst worst;
  for (std::uint64_t start = first; start < last; start += stride * chunk) {
    const std::span<float> x = function.inputs<float>();
    for (std::uint64_t i = 0; i < chunk; ++i) {
      x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(std::min(start + i * stride, last - 1)));
    }
    const std::span<const float> y = function.run<float>();
    for (std::size_t i = 0; i < chunk; ++i) {
      const double error = error_f32(y[i], reference(static_cast<double>(x[i])));
      if (error > worst.ulp) worst.ulp = error, worst.x = x[i], worst.got = y[i];
      worst.least = std::min(worst.least, std::isnan(y[i]) ? HUGE_VAL : y[i]);
      worst.greatest = std::max(worst.greatest, std::isnan(y[i]) ? -HUGE_VAL : y[i]);
    }
  }
  return worst;
}

// Every 251st float; all of them with HOTLOOP_EXHAUSTIVE=1 (minutes).
TEST_P(MathTest, F32OverAllInputs) {
  Function function(GetParam().op, DType::F32);
  const bool all = std::getenv("HOTLOOP_EXHAUSTIVE") != nullptr;
  const Worst worst = sweep_f32(function, GetParam().f64, 0, std::uint64_t{1} << 32, all ? 1 : 251);
  RecordProperty("max_ulp", std::to_string(worst.ulp));
  std::printf("%s f32: max %.3f ulp at %a\n", std::string(ir::name_of(GetParam().op)).c_str(), worst.ulp, worst.x);
  EXPECT_LE(worst.ulp, GetParam().max_ulp_f32) << "at " << worst.x << " got " << worst.got;
  if (GetParam().op == ScalarOp::Tanh) EXPECT_TRUE(worst.least == -1 && worst.greatest == 1);
  if (GetParam().op == ScalarOp::Sigmoid) EXPECT_TRUE(worst.least == 0 && worst.greatest == 1);
}

TEST_P(MathTest, F64RandomAndSpecial) {
  Function function(GetParam().op, DType::F64);
  const std::uint64_t seed = 20261121;
  std::mt19937_64 rng(seed);
  double worst = -1, worst_x = 0;
  const int rounds = std::getenv("HOTLOOP_EXHAUSTIVE") != nullptr ? 800 : 8;
  for (int round = 0; round < rounds; ++round) {
    const std::span<double> x = function.inputs<double>();
    for (double& v : x) {
      const std::uint64_t bits = rng();
      // Half of them any bit pattern, half spread over the range where the functions move.
      v = round % 2 == 0
              ? std::bit_cast<double>(bits)
              : std::ldexp(static_cast<double>(static_cast<std::int64_t>(bits)), -63) * (round % 4 == 1 ? 3 : 760);
    }
    const double specials[] = {
        0.0, -0.0, 5e-324,   -5e-324,   0x1p-1022, -0x1p-1022,          709.78271289338397, 709.8, -745.13, -745.2,
        1,   -1,   HUGE_VAL, -HUGE_VAL, NAN,       0.70710678118654757, 1.4142135623730951, 1e308, -1e308};
    std::copy(std::begin(specials), std::end(specials), x.begin());
    const std::span<const double> y = function.run<double>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = error_f64(y[i], GetParam().f80(static_cast<long double>(x[i])));
      if (error > worst) worst = error, worst_x = x[i];
    }
  }
  std::printf("%s f64: max %.3f ulp at %a\n", std::string(ir::name_of(GetParam().op)).c_str(), worst, worst_x);
  EXPECT_LE(worst, GetParam().max_ulp_f64) << "at " << worst_x << ", seed " << seed;
}

// Where 1 - |x| is small, down to its last bit, which few of the numbers above are.
TEST(Math, ErfInvNearItsEnds) {
  Function function(ScalarOp::ErfInv, DType::F64);
  std::mt19937_64 rng(20261126);
  double worst = 0, worst_x = 0;
  const int rounds = std::getenv("HOTLOOP_EXHAUSTIVE") != nullptr ? 100 : 2;
  for (int round = 0; round < rounds; ++round) {
    const std::span<double> x = function.inputs<double>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double left =
          std::ldexp(0.5 + std::ldexp(static_cast<double>(rng() >> 11), -54), -static_cast<int>(i % 53));
      x[i] = i % 2 == 0 ? 1 - left : left - 1;
    }
    const std::span<const double> y = function.run<double>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = error_f64(y[i], erfinv_f80(static_cast<long double>(x[i])));
      if (error > worst) worst = error, worst_x = x[i];
    }
  }
  std::printf("erfinv f64 near its ends: max %.3f ulp at %a\n", worst, worst_x);
  EXPECT_LE(worst, 2.8) << "at " << worst_x;
}

// Instructions from the argument to the result, one waiting for the other: what a step of a recurrent network waits for. Those of integers, one cycle
// where one of floats takes four, are not counted. Polynomials by Horner would make it four (f32) or a dozen (f64) longer.
TEST(Math, ChainsAreShort) {
  const auto chain = [](ScalarOp op, DType dtype) {
    Program program = elementwise(op, dtype, target_named("avx512"));
    lower_math(program);
    const auto& map = std::get<Map>(std::get<Single>(program.body.front().node).body.front().node);
    std::vector<int> depth;
    for (const Instr& in : map.instrs) {
      int most = 0;
      for (const int arg : in.args)
        if (arg >= 0) most = std::max(most, depth[static_cast<std::size_t>(arg)]);
      const bool is_of_floats = in.dtype == DType::F32 || in.dtype == DType::F64 || in.dtype == DType::Bool;
      depth.push_back(in.kind == Instr::Kind::Op && in.op != ScalarOp::Bitcast && is_of_floats ? most + 1 : most);
    }
    return depth.back();
  };
  EXPECT_LE(chain(ScalarOp::Exp, DType::F32), 14);
  EXPECT_LE(chain(ScalarOp::Tanh, DType::F32), 13);
  EXPECT_LE(chain(ScalarOp::Sigmoid, DType::F32), 12);
  EXPECT_LE(chain(ScalarOp::Exp, DType::F64), 17);
  EXPECT_LE(chain(ScalarOp::Tanh, DType::F64), 15);
  EXPECT_LE(chain(ScalarOp::Sigmoid, DType::F64), 15);
}

// Near 0 these are x itself, sign included.
TEST(Math, OddFunctionsKeepZerosAndDenormals) {
  for (const ScalarOp op : {ScalarOp::Tanh, ScalarOp::Expm1, ScalarOp::Log1p, ScalarOp::Sin}) {
    Function f32(op, DType::F32), f64(op, DType::F64);
    for (const double x : {0.0, 0x1p-149, 0x1.8p-130, 0x1p-126}) {
      for (const double sign : {1.0, -1.0}) {
        const auto single = static_cast<float>(sign * x);
        EXPECT_EQ(std::bit_cast<std::uint32_t>(f32(single)), std::bit_cast<std::uint32_t>(single)) << ir::name_of(op);
        EXPECT_EQ(std::bit_cast<std::uint64_t>(f64(sign * x)), std::bit_cast<std::uint64_t>(sign * x))
            << ir::name_of(op);
      }
    }
    EXPECT_EQ(f64(-0x1p-1074), -0x1p-1074) << ir::name_of(op);
  }
}

// A NaN comes out as NaN whatever its payload, and no result leaves the range of the function.
TEST(Math, SpecialValuesAndRanges) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    for (const ScalarOp op : {ScalarOp::Exp, ScalarOp::Expm1, ScalarOp::Log, ScalarOp::Log1p, ScalarOp::Tanh,
                              ScalarOp::Sigmoid, ScalarOp::Erf, ScalarOp::ErfInv, ScalarOp::Erfc, ScalarOp::Ndtr,
                              ScalarOp::LogNdtr, ScalarOp::Sin, ScalarOp::Cos}) {
      Function f(op, dtype);
      for (const std::uint32_t payload : {0x7fc00000u, 0x7fc001ffu, 0xffc00155u, 0x7fffffffu, 0x7f800001u}) {
        const auto nan = std::bit_cast<float>(payload);
        const bool is_nan = dtype == DType::F32 ? std::isnan(f(nan)) : std::isnan(f(static_cast<double>(nan)));
        EXPECT_TRUE(is_nan) << ir::name_of(op) << " " << payload;
      }
    }
  }
  Function tanh(ScalarOp::Tanh, DType::F32), sigmoid(ScalarOp::Sigmoid, DType::F32), exp(ScalarOp::Exp, DType::F32);
  for (const float x : {5.0f, 8.5f, 9.0f, 9.5f, 17.0f, 88.0f, 1e10f, infinity}) {
    EXPECT_LE(tanh(x), 1.0f);
    EXPECT_GE(tanh(-x), -1.0f);
    EXPECT_LE(sigmoid(x), 1.0f);
    EXPECT_GE(sigmoid(-x), 0.0f);
    EXPECT_GE(exp(-x), 0.0f);
  }
  EXPECT_EQ(tanh(20.0f), 1.0f);
  EXPECT_EQ(exp(0.0f), 1.0f);
  EXPECT_EQ(exp(-infinity), 0.0f);
  EXPECT_EQ(exp(infinity), infinity);
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_GT(sigmoid(-100.0f), 0.0f) << "denormal, not flushed";
}

// Without fma the sequences multiply and add, to nearly the same accuracy.
TEST(Math, PortableTargetStaysAccurate) {
  for (const Case& c : cases()) {
    Function function(c.op, DType::F32, target_named("portable"));
    const Worst worst = sweep_f32(function, c.f64, 0, std::uint64_t{1} << 32, 2039);
    std::printf("%s f32 without fma: max %.3f ulp\n", std::string(ir::name_of(c.op)).c_str(), worst.ulp);
    EXPECT_LE(worst.ulp, c.max_ulp_f32) << ir::name_of(c.op) << " at " << worst.x;
  }
}

}  // namespace
}  // namespace hotloop::kernel
