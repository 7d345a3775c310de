// Powers as basic instructions: their accuracy, what is defined of zeros, infinities and NaNs, and the same bits from all backends. Those of f32
// compute in f64 between numbers of f32, which changes no order of summation.
#include <bit>
#include <cmath>
#include <limits>

#include "llvm_backend.h"
#include "schedule/lower_math.h"

namespace hotloop::kernel {
namespace {

// z = x^y for n pairs, and the sum of all z.
Program powers(DType dtype, std::int64_t n, const Target& target) {
  ProgramBuilder p(target);
  const int x = p.argument(dtype, n), y = p.argument(dtype, n), z = p.result(dtype, n), total = p.result(dtype, 1);
  const Var i = p.var("i"), k = p.var("k");
  const auto power = [&](MapBuilder& m, Var v) {
    return m.op(ScalarOp::Pow, dtype, m.load(dtype, at(x, Affine::of(v))), m.load(dtype, at(y, Affine::of(v))));
  };
  MapBuilder each({{i, {n, -1}}}, 1, 0);
  each.store(dtype, at(z, Affine::of(i)), power(each, i));
  MapBuilder all({{k, {n, -1}}}, 0, 0);
  all.store(dtype, at(total), all.reduced(ScalarOp::Add, dtype, power(all, k)));
  EXPECT_EQ(each.build().lanes(), lanes_of(dtype));
  p.add(Single{{{each.build()}, {all.build()}}});
  Program program = p.build();
  lower_math(program);
  verify(program);
  EXPECT_EQ(std::get<Map>(std::get<Single>(program.body[0].node).body[1].node).lanes(), lanes_of(dtype));
  return program;
}

template <class T> std::vector<T> run(const Program& program, const CompiledKernel& kernel, const std::vector<T>& x,
                                      const std::vector<T>& y) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<Array> out = {Array(dtype_of<T>(), {n}), Array(dtype_of<T>(), {1})};
  run_kernel(program, kernel.function(), {Array::from(x, {n}), Array::from(y, {n})}, out);
  const auto z = std::as_const(out[0]).data<T>();
  return {z.begin(), z.end()};
}

// In units of the last place of the exact result.
template <class T> double error_of(T got, long double want) {
  using Limits = std::numeric_limits<T>;
  int exponent = 0;
  frexpl(want, &exponent);
  const long double unit = ldexpl(1.0L, std::max(exponent, Limits::min_exponent) - Limits::digits);
  return static_cast<double>(std::abs(static_cast<long double>(got) - want) / unit);
}

// `most`: error of f32 0.502, of f64 what is measured; `range`: of the result, as a power of two.
template <class T> void expect_right(const std::string& name, double range, double most) {
  constexpr std::int64_t n = 1 << 16;
  const Program program = powers(dtype_of<T>(), n, target_named(name));
  const auto kernel = compile_c(program);
  std::mt19937 random(11);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<T> x, y;
  for (std::int64_t i = 0; i < n; ++i) {
    const double p = uniform(random) * range;
    const double log = uniform(random) * (i % 3 == 0 ? 1e-3 : i % 3 == 1 ? 1 : sizeof(T) == 4 ? 120 : 1000);
    x.push_back(static_cast<T>(std::exp2(log)));
    y.push_back(static_cast<T>(p / std::log2(static_cast<double>(x.back()))));
    if (!std::isfinite(y.back())) y.back() = 1;
  }
  const std::vector<T> z = run(program, *kernel, x, y);
  double worst = 0;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const long double want = powl(x[i], y[i]);
    if (want < static_cast<long double>(std::numeric_limits<T>::max())) worst = std::max(worst, error_of(z[i], want));
  }
  EXPECT_LE(worst, most) << name << ' ' << range;
  std::printf("pow %s %s, range %g: max %.3f ulp\n", sizeof(T) == 4 ? "f32" : "f64", name.c_str(), range, worst);
}

TEST(Pow, IsRightToHalfAUnitInF32AndToTwoInF64) {
  for (const std::string& name : hotloop::kernel::runnable_targets()) {
    for (const double range : {0.01, 1.0, 80.0}) expect_right<float>(name, range, 0.502);
    for (const double range : {0.01, 1.0, 80.0, 1070.0}) expect_right<double>(name, range, 1.6);
  }
}

// Zeros, infinities, NaNs, whole numbers and the ends of the range, of either sign: the C standard's.
template <class T> void expect_ends(double most) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> numbers;
  for (const T x : {T(0),
                    Limits::denorm_min(),
                    Limits::min() / 100,
                    Limits::min(),
                    T(0.2),
                    T(0.5),
                    1 - Limits::epsilon() / 2,
                    T(1),
                    1 + Limits::epsilon(),
                    T(1.5),
                    T(2),
                    T(3),
                    T(7),
                    T(128),
                    T(149.5),
                    T(8388607.5),
                    T(16777215),
                    T(16777216),
                    T(3e9),
                    T(0x1.fffffffffffffp52),
                    T(1e300),
                    Limits::max(),
                    Limits::infinity(),
                    Limits::quiet_NaN()}) {
    numbers.push_back(x);
    numbers.push_back(-x);
  }
  std::vector<T> x, y;
  for (const T a : numbers)
    for (const T b : numbers) {
      x.push_back(a);
      y.push_back(b);
    }
  const Program program = powers(dtype_of<T>(), static_cast<std::int64_t>(x.size()), host_target());
  const std::vector<T> z = run(program, *compile_c(program), x, y);
  for (std::size_t i = 0; i < z.size(); ++i) {
    const long double exact = powl(x[i], y[i]);
    const auto want = static_cast<T>(exact);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(z[i])) << x[i] << '^' << y[i] << " = " << z[i];
    } else if (want == 0 || std::isinf(want) || exact == 1) {
      EXPECT_EQ(z[i], want) << x[i] << '^' << y[i];
      EXPECT_EQ(std::signbit(z[i]), std::signbit(want)) << x[i] << '^' << y[i];
    } else {
      EXPECT_LE(error_of(z[i], exact), most) << x[i] << '^' << y[i];
      EXPECT_EQ(std::signbit(z[i]), std::signbit(want)) << x[i] << '^' << y[i];
    }
  }
}

// base^y of a base that is known while code is made.
template <class T> void expect_right_of_known(T base, double most) {
  constexpr std::int64_t n = 1 << 14;
  ProgramBuilder p(host_target());
  const int y = p.argument(dtype_of<T>(), n), z = p.result(dtype_of<T>(), n);
  const Var i = p.var("i");
  MapBuilder map({{i, {n, -1}}}, 1, 0);
  const int power =
      map.op(ScalarOp::Pow, dtype_of<T>(), map.constant(base), map.load(dtype_of<T>(), at(y, Affine::of(i))));
  map.store(dtype_of<T>(), at(z, Affine::of(i)), power);
  p.add(Single{{{map.build()}}});
  Program program = p.build();
  lower_math(program);
  verify(program);
  const double range = sizeof(T) == 4 ? 151 : 1080, log = std::log2(static_cast<double>(base));
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<T> given = {0,
                          -T(0),
                          1,
                          -1,
                          2,
                          3,
                          T(0.5),
                          std::numeric_limits<T>::infinity(),
                          -std::numeric_limits<T>::infinity(),
                          std::numeric_limits<T>::quiet_NaN(),
                          std::numeric_limits<T>::max(),
                          std::numeric_limits<T>::denorm_min()};
  while (given.size() < n) given.push_back(static_cast<T>(uniform(random) * std::pow(range, uniform(random)) / log));
  std::vector<Array> out = {Array(dtype_of<T>(), {n})};
  run_kernel(program, compile_c(program)->function(), {Array::from(given, {n})}, out);
  const auto got = std::as_const(out[0]).data<T>();
  for (std::size_t k = 0; k < given.size(); ++k) {
    const long double exact = powl(base, given[k]);
    const auto want = static_cast<T>(exact);
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(got[k])) << base << '^' << given[k];
    else if (want == 0 || std::isinf(want) || exact == 1)
      EXPECT_EQ(got[k], want) << base << '^' << given[k];
    else
      EXPECT_LE(error_of(got[k], exact), most) << base << '^' << given[k];
  }
}

TEST(Pow, OfAKnownBaseIsOneProduct) {
  for (const float base : {2.0F, 0.5F, 10.0F, 0.9F, 0.999F, 1.0F, 1.0000001F, 1e-40F, 3e38F, 0.0F, -2.0F})
    expect_right_of_known(base, 0.502);
  for (const double base : {2.0, 0.25, 1.0, 10.0, 0x1p-1060, 0.0}) expect_right_of_known(base, 1.6);
}

TEST(Pow, OfZerosInfinitiesAndNaNs) {
  expect_ends<float>(0.502);
  expect_ends<double>(1.6);
}

class PowBackends : public LlvmBackend {};

TEST_P(PowBackends, AgreeToTheBit) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {1, 7, 16, 53}) {
      std::mt19937 random(3);
      Array x = random_values(dtype, n, random);
      for (std::int64_t i = 0; i < n; i += 2) x.set(i, std::abs(x.at(i)));
      check(powers(dtype, n, target()), {1}, 1, {x});
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, PowBackends, testing::ValuesIn(hotloop::kernel::native_targets),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
