// The inverse of the normal distribution function and its slope: at chosen places, and against a reference of more digits over floats.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <random>
#include <span>

#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"

namespace hotloop {
namespace {

using In = std::span<const Value>;

TEST(Ndtri, IsTheInverseOfNdtr) {
  const std::vector<double> p{0, 5e-324, 1e-300, 1e-20, 0.01, 0.25, 0.3, 0.5, 0.75, 1 - 0x1p-20, 1, -0.1, 1.5};
  const Array x = Array::from(p, {static_cast<std::int64_t>(p.size())});
  const auto graph = trace([](In in) { return std::vector{ndtri(in[0])}; }, std::vector{x.type()});
  const double inf = std::numeric_limits<double>::infinity();
  // Found with 40 digits.
  const std::vector<double> wanted{-inf,
                                   -38.467405617144344,
                                   -37.0470962993612,
                                   -9.262340089798407,
                                   -2.326347874040841,
                                   -0.6744897501960817,
                                   -0.5244005127080408,
                                   0,
                                   0.6744897501960817};
  for (const auto& got : {compile(graph)({&x, 1}), ir::evaluate(*graph, {&x, 1})}) {
    EXPECT_EQ(got[0].at(0), -inf);
    for (std::size_t i = 1; i < wanted.size(); ++i)
      EXPECT_NEAR(got[0].at(static_cast<std::int64_t>(i)), wanted[i], 1e-15 * std::abs(wanted[i])) << p[i];
    EXPECT_NEAR(0.5 * std::erfc(-got[0].at(9) / std::sqrt(2.0)), p[9], 1e-15);
    EXPECT_EQ(got[0].at(10), inf);
    EXPECT_TRUE(std::isnan(got[0].at(11)) && std::isnan(got[0].at(12)));
  }
}

// y, right to half of its digits, after one of Halley's steps on the distribution function.
long double refined(long double y, long double p) {
  constexpr long double root_of_half = std::numbers::sqrt2_v<long double> / 2;
  // Near 1/2 the difference to it, which is exact.
  const long double beyond = std::fabs(p - 0.5L) < 0.25L ? (erfl(y * root_of_half) - (2 * p - 1)) / 2
                             : p < 0.5L                  ? erfcl(-y * root_of_half) / 2 - p
                                                         : (1 - p) - erfcl(y * root_of_half) / 2;
  const long double step =
      beyond * std::numbers::sqrt2_v<long double> / std::numbers::inv_sqrtpi_v<long double> * expl(y * y / 2);
  return y - step / (1 + y * step / 2);
}

template <class T> double error_of(T got, long double wanted) {
  const T size = std::fabs(static_cast<T>(wanted));
  const T unit = std::nextafter(size, std::numeric_limits<T>::infinity()) - size;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - wanted) / static_cast<long double>(unit));
}

// The greatest errors of ndtri and of its derivative, the latter where it is finite.
template <class T> class Errors {
 public:
  explicit Errors(DType dtype)
      : x_(dtype, {count}),
        compiled_(compile(trace(
            [](In in) {
              const auto [y, slope] =
                  jvp([](In v) { return std::vector{ndtri(v[0])}; }, in, std::vector{ones_like(in[0])});
              return std::vector{y[0], slope[0]};
            },
            std::vector{ValueType{dtype, {count}}}))) {}

  static constexpr std::int64_t count = 1 << 14;
  std::span<T> places() { return x_.data<T>(); }
  void measure() {
    const auto got = compiled_({&x_, 1});
    const std::span<const T> y = got[0].data<T>(), slopes = got[1].data<T>();
    for (std::size_t i = 0; i < count; ++i) {
      const long double wanted = refined(static_cast<long double>(y[i]), static_cast<long double>(places()[i]));
      of_value = std::fmax(of_value, error_of(y[i], wanted));
      const long double slope =
          std::numbers::sqrt2_v<long double> / std::numbers::inv_sqrtpi_v<long double> * expl(wanted * wanted / 2);
      if (slope < static_cast<long double>(std::numeric_limits<T>::max()))
        of_slope = std::fmax(of_slope, error_of(slopes[i], slope));
    }
  }
  double of_value = 0, of_slope = 0;

 private:
  Array x_;
  Executable compiled_;
};

// Every 251st float between 0 and 1; all of them with HOTLOOP_EXHAUSTIVE=1 (minutes): 2.805, its slope 3.897.
TEST(Ndtri, F32OverAllInputs) {
  Errors<float> errors(DType::F32);
  constexpr std::uint64_t end = 0x3f800000;  // 1
  const std::uint64_t stride = std::getenv("HOTLOOP_EXHAUSTIVE") != nullptr ? 1 : 251;
  for (std::uint64_t bits = 1; bits < end;) {
    for (float& p : errors.places()) {
      p = std::bit_cast<float>(static_cast<std::uint32_t>(std::min(bits, end - 1)));
      bits += stride;
    }
    errors.measure();
  }
  std::printf("ndtri f32: max %.3f ulp, its slope %.3f\n", errors.of_value, errors.of_slope);
  EXPECT_LE(errors.of_value, 3);
  EXPECT_LE(errors.of_slope, 4);
}

// A hundred times as many samples with HOTLOOP_EXHAUSTIVE=1: 3.112.
TEST(Ndtri, F64OverSamples) {
  Errors<double> errors(DType::F64);
  std::mt19937_64 random(20261127);
  for (int round = 0; round < (std::getenv("HOTLOOP_EXHAUSTIVE") != nullptr ? 2000 : 20); ++round) {
    for (double& p : errors.places()) {
      const double u = std::ldexp(static_cast<double>(random() >> 12 | 1), -52);  // in (0, 1)
      p = round % 4 == 0   ? std::exp(-744 * u)
          : round % 4 == 1 ? u
          : round % 4 == 2 ? 1 - std::exp(-36 * u)
                           : 0.5 + std::copysign(std::exp(-36 * u) / 2, static_cast<double>(random() >> 63) - 0.5);
      if (p >= 1) p = u;
    }
    errors.measure();
  }
  std::printf("ndtri f64: max %.3f ulp\n", errors.of_value);
  EXPECT_LE(errors.of_value, 3.2);
}

}  // namespace
}  // namespace hotloop
