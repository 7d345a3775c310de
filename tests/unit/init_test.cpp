#include "hotloop/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace hotloop::nn {
namespace {

TEST(Init, SameSeedSameValuesOnEveryMachine) {
  // Recorded from this implementation: a change of generator or of its use would break saved experiments.
  const Array a = uniform(42, {3}, DType::F64, 0, 1);
  EXPECT_EQ(a.at(0), 0.6129598811894158);
  EXPECT_EQ(a.at(1), 0.9877186509145105);
  EXPECT_EQ(a.at(2), 0.82586682719604931);
  EXPECT_EQ(fold_in(0, "weight_ih"), 0x30b8358307fd6254u);
  EXPECT_NE(a.at(0), uniform(43, {3}, DType::F64, 0, 1).at(0));
  EXPECT_NE(fold_in(0, "weight_ih"), fold_in(0, "weight_hh"));
  EXPECT_NE(fold_in(0, "weight_ih"), fold_in(1, "weight_ih"));
}

TEST(Init, F32IsTheRoundedF64) {
  const Array wide = uniform(7, {50}, DType::F64, -0.3, 0.3), narrow = uniform(7, {50}, DType::F32, -0.3, 0.3);
  for (std::int64_t i = 0; i < 50; ++i) EXPECT_EQ(static_cast<float>(wide.at(i)), static_cast<float>(narrow.at(i)));
}

TEST(Init, UniformFillsItsRange) {
  const Array a = uniform(1, {20000}, DType::F64, -2, 3);
  double low = 9, high = -9, sum = 0, square = 0;
  for (double v : a.data<double>()) {
    low = std::min(low, v), high = std::max(high, v), sum += v, square += v * v;
  }
  EXPECT_GE(low, -2);
  EXPECT_LT(high, 3);
  EXPECT_LT(low, -1.99);
  EXPECT_GT(high, 2.99);
  const double mean = sum / 20000;
  EXPECT_NEAR(mean, 0.5, 4 * std::sqrt(25.0 / 12 / 20000));
  EXPECT_NEAR(square / 20000 - mean * mean, 25.0 / 12, 0.05);
}

TEST(Init, NormalHasItsMoments) {
  const Array a = normal(1, {20000}, DType::F64, 2);
  double sum = 0, square = 0, fourth = 0;
  for (double v : a.data<double>()) sum += v, square += v * v, fourth += v * v * v * v;
  EXPECT_NEAR(sum / 20000, 0, 4 * 2 / std::sqrt(20000.0));
  EXPECT_NEAR(square / 20000, 4, 0.16);
  EXPECT_NEAR(fourth / 20000 / 16, 3, 0.4);
}

TEST(Init, OrthogonalIsOrthogonalBothWays) {
  for (const Shape& shape : {Shape{12, 5}, Shape{5, 12}, Shape{7, 7}, Shape{1, 1}, Shape{50, 43}, Shape{90, 90}}) {
    const Array q = orthogonal(3, shape, DType::F64);
    const bool tall = shape[0] >= shape[1];
    const std::int64_t m = tall ? shape[0] : shape[1], n = tall ? shape[1] : shape[0];
    for (std::int64_t a = 0; a < n; ++a)
      for (std::int64_t b = 0; b < n; ++b) {
        double product = 0;
        for (std::int64_t i = 0; i < m; ++i)
          product += tall ? q.at(i * n + a) * q.at(i * n + b) : q.at(a * m + i) * q.at(b * m + i);
        EXPECT_NEAR(product, a == b ? 1 : 0, 1e-14) << shape.str();
      }
  }
}

// Whatever order it is computed in: each is what is left of the one drawn, after those before.
TEST(Init, OrthogonalIsWhatGramSchmidtLeaves) {
  constexpr std::int64_t n = 21, m = 70;
  const Array drawn = normal(3, {n, m}, DType::F64), q = orthogonal(3, {n, m}, DType::F64);
  for (std::int64_t j = 0; j < n; ++j) {
    std::vector<double> left(m);
    for (std::int64_t i = 0; i < m; ++i) left[static_cast<std::size_t>(i)] = drawn.at(j * m + i);
    double square = 0;
    for (std::int64_t k = 0; k < j; ++k) {
      double product = 0;
      for (std::int64_t i = 0; i < m; ++i) product += q.at(k * m + i) * left[static_cast<std::size_t>(i)];
      for (std::int64_t i = 0; i < m; ++i) left[static_cast<std::size_t>(i)] -= product * q.at(k * m + i);
    }
    for (const double v : left) square += v * v;
    for (std::int64_t i = 0; i < m; ++i)
      EXPECT_NEAR(q.at(j * m + i), left[static_cast<std::size_t>(i)] / std::sqrt(square), 1e-14) << j;
  }
}

TEST(Init, GlorotBoundUsesBothExtents) {
  const Array a = glorot_uniform(3, {90, 60}, DType::F64);
  const double limit = std::sqrt(6.0 / 150);
  double high = 0;
  for (double v : a.data<double>()) high = std::max(high, std::abs(v));
  EXPECT_LE(high, limit);
  EXPECT_GT(high, 0.99 * limit);
}

}  // namespace
}  // namespace hotloop::nn
