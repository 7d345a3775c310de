// Powers of f32 as basic instructions: their accuracy, what is defined of zeros, infinities and NaNs, and the same bits from all backends. They
// compute in f64 between numbers of f32, which changes no order of summation.
#include <bit>
#include <cmath>
#include <limits>

#include "llvm_backend.h"
#include "schedule/lower_math.h"

namespace hotloop::kernel {
namespace {

// z = x^y for n pairs, and the sum of all z.
Program powers(std::int64_t n, const Target& target) {
  ProgramBuilder p(target);
  const int x = p.argument(f32, n), y = p.argument(f32, n), z = p.result(f32, n), total = p.result(f32, 1);
  const Var i = p.var("i"), k = p.var("k");
  const auto power = [&](MapBuilder& m, Var v) {
    return m.op(ScalarOp::Pow, f32, m.load(f32, at(x, Affine::of(v))), m.load(f32, at(y, Affine::of(v))));
  };
  MapBuilder each({{i, {n, -1}}}, 1, 0);
  each.store(f32, at(z, Affine::of(i)), power(each, i));
  MapBuilder all({{k, {n, -1}}}, 0, 0);
  all.store(f32, at(total), all.reduced(ScalarOp::Add, f32, power(all, k)));
  EXPECT_EQ(each.build().lanes(), 16);
  p.add(Single{{{each.build()}, {all.build()}}});
  Program program = p.build();
  lower_math(program);
  verify(program);
  EXPECT_EQ(std::get<Map>(std::get<Single>(program.body[0].node).body[1].node).lanes(), 16);
  return program;
}

std::vector<float> run(const Program& program, const CompiledKernel& kernel, const std::vector<float>& x,
                       const std::vector<float>& y) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<Array> out = {Array(f32, {n}), Array(f32, {1})};
  run_kernel(program, kernel.function(), {Array::from(x, {n}), Array::from(y, {n})}, out);
  const auto z = std::as_const(out[0]).data<float>();
  return {z.begin(), z.end()};
}

// In units of the last place of the exact result.
double error_of(float got, long double want) {
  int exponent = 0;
  std::frexp(static_cast<double>(want), &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, -125) - 24);
  return std::abs(static_cast<double>(static_cast<long double>(got) - want)) / unit;
}

TEST(Pow, IsRightToHalfAUnit) {
  std::mt19937 random(11);
  constexpr std::int64_t n = 1 << 16;
  for (const std::string name : {"avx512", "avx2", "portable"}) {
    if (name == "avx512" && host_target().name != "avx512") continue;
    const Program program = powers(n, target_named(name));
    const auto kernel = compile_c(program);
    for (const double range : {0.01, 1.0, 80.0}) {
      std::vector<float> x, y;
      for (std::int64_t i = 0; i < n; ++i) {
        const double p =
            std::uniform_real_distribution<double>(-1, 1)(random) * range;  // of the result, as a power of two
        const double log = std::uniform_real_distribution<double>(-1, 1)(random) * (i % 3 == 0   ? 1e-3
                                                                                    : i % 3 == 1 ? 1
                                                                                                 : 120);
        x.push_back(static_cast<float>(std::exp2(log)));
        y.push_back(static_cast<float>(p / std::log2(static_cast<double>(x.back()))));
        if (!std::isfinite(y.back())) y.back() = 1;
      }
      const std::vector<float> z = run(program, *kernel, x, y);
      double worst = 0;
      for (std::size_t i = 0; i < z.size(); ++i) {
        const long double want = powl(x[i], y[i]);
        if (want < std::numeric_limits<float>::max()) worst = std::max(worst, error_of(z[i], want));
      }
      EXPECT_LE(worst, 0.502) << name << ' ' << range;
    }
  }
}

TEST(Pow, OfZerosInfinitiesAndNaNs) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> numbers;
  for (const float x : {0.0f,          1e-45f,      1e-40f,         0x1p-126f,
                        0.2f,          0.5f,        0x1.fffffep-1f, 1.0f,
                        0x1.000002p0f, 1.5f,        2.0f,           3.0f,
                        7.0f,          128.0f,      149.5f,         8388607.5f,
                        16777215.0f,   16777216.0f, 3e9f,           0x1.fffffep127f,
                        infinity,      nan}) {
    numbers.push_back(x);
    numbers.push_back(-x);
  }
  std::vector<float> x, y;
  for (const float a : numbers)
    for (const float b : numbers) {
      x.push_back(a);
      y.push_back(b);
    }
  const Program program = powers(static_cast<std::int64_t>(x.size()), host_target());
  const std::vector<float> z = run(program, *compile_c(program), x, y);
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double exact = std::pow(static_cast<double>(x[i]), static_cast<double>(y[i]));
    const auto want = static_cast<float>(exact);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(z[i])) << x[i] << '^' << y[i] << " = " << z[i];
    } else if (want == 0 || std::isinf(want) || want == 1) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(z[i]), std::bit_cast<std::uint32_t>(want)) << x[i] << '^' << y[i];
    } else {
      EXPECT_LE(error_of(z[i], exact), 0.502) << x[i] << '^' << y[i];
      EXPECT_EQ(std::signbit(z[i]), std::signbit(want)) << x[i] << '^' << y[i];
    }
  }
}

class PowBackends : public LlvmBackend {};

TEST_P(PowBackends, AgreeToTheBit) {
  for (const std::int64_t n : {1, 7, 16, 53}) {
    std::mt19937 random(3);
    Array x = random_values(f32, n, random);
    for (std::int64_t i = 0; i < n; i += 2) x.set(i, std::abs(x.at(i)));
    check(powers(n, target()), {1}, 1, {x});
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, PowBackends, testing::Values("avx512", "avx2", "portable"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
