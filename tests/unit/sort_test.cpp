// sort, argsort and searchsorted against the standard library, compiled and by the interpreter; atan2 and its inverses at the edges.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "hotloop/angles.h"
#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/sorting.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "op_checks.h"

namespace hotloop {
namespace {

using In = std::span<const Value>;
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Array f64(const std::vector<double>& values) { return Array::from(values, {static_cast<std::int64_t>(values.size())}); }

// Whether a comes before b.
bool before(double a, double b) { return a < b || (!std::isnan(a) && std::isnan(b)); }

// Few different values, so that there are ties, and some that are not finite.
std::vector<double> numbers(std::size_t n, std::mt19937& random) {
  std::vector<double> values(n);
  for (double& v : values) {
    const auto k = random() % 12;
    v = k == 0 ? nan : k == 1 ? inf : k == 2 ? -inf : k == 3 ? -0.0 : static_cast<double>(k) - 7.5;
  }
  return values;
}

TEST(Sort, IsStableForEveryLength) {
  std::mt19937 random(1);
  for (const std::size_t n : {1, 2, 3, 4, 5, 7, 8, 13, 31, 64, 65, 100, 255, 256, 300})
    for (const bool descending : {false, true}) {
      const std::vector<double> x = numbers(n, random);
      std::vector<int> wanted(n);
      std::iota(wanted.begin(), wanted.end(), 0);
      std::ranges::stable_sort(wanted, [&](int a, int b) {
        const auto at = [&](int i) { return x[static_cast<std::size_t>(i)]; };
        return descending ? before(at(b), at(a)) : before(at(a), at(b));
      });
      const auto fn = [&](In in) { return std::vector{argsort(in[0], 0, descending), sort(in[0], 0, descending)}; };
      const auto graph = trace(fn, std::vector{ValueType{DType::F64, {static_cast<std::int64_t>(n)}}});
      const std::vector<Array> inputs{f64(x)};
      for (const auto& got : {compile(graph)(inputs), ir::evaluate(*graph, inputs)})
        for (std::size_t i = 0; i < n; ++i) {
          EXPECT_EQ(got[0].at(static_cast<std::int64_t>(i)), wanted[i]) << "length " << n << ", place " << i;
          const double value = got[1].at(static_cast<std::int64_t>(i)), of = x[static_cast<std::size_t>(wanted[i])];
          EXPECT_TRUE(value == of || (std::isnan(value) && std::isnan(of)));
        }
    }
}

TEST(Sort, AlongEachAxisAndInBatches) {
  std::mt19937 random(2);
  const Shape shape{3, 6, 5};
  Array x(DType::I32, shape);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(random() % 9));
  for (int axis = 0; axis < 3; ++axis) {
    const Function fn = [&](In in) { return std::vector{sort(in[0], axis), argsort(in[0], axis - 3, true)}; };
    const auto got = jit(fn)({x});
    const std::int64_t stride = axis == 0 ? 30 : axis == 1 ? 5 : 1, n = shape[axis];
    for (std::int64_t i = 0; i < x.size(); ++i) {
      if (i / stride % n != 0) continue;
      std::vector<double> line, sorted, by_position;
      for (std::int64_t k = 0; k < n; ++k) {
        const auto place = static_cast<std::int64_t>(got[1].at(i + k * stride));
        line.push_back(x.at(i + k * stride));
        sorted.push_back(got[0].at(i + k * stride));
        by_position.push_back(x.at(i + place * stride));
      }
      std::ranges::sort(line);
      EXPECT_EQ(line, sorted);
      std::ranges::reverse(line);
      EXPECT_EQ(line, by_position);
    }
    if (axis == 0) continue;
    const auto batched = jit(vmap(
        [&](In in) {
          return std::vector{sort(in[0], axis - 1), argsort(in[0], axis - 1, true)};
        },
        {0}))({x});
    for (std::size_t r = 0; r < 2; ++r) EXPECT_TRUE(ir::close(batched[r], got[r], 0));
  }
}

// Long axes of every dtype, of one row, few rows and many: digits go from the lowest to the sign.
TEST(Sort, LongAxesOfEveryDType) {
  std::mt19937_64 random(4);
  constexpr std::int64_t n = 259;
  for (const DType dtype : {DType::F32, DType::F64, DType::I32, DType::U32, DType::I64, DType::Bool})
    for (const std::int64_t rows : {1, 3, 70})
      for (const bool descending : {false, true}) {
        Array x(dtype, {rows, n});
        for (std::int64_t i = 0; i < x.size(); ++i) {
          // Of all sizes, and of few values where the number of digits is small.
          const double size = std::ldexp(static_cast<double>(random() % 64), static_cast<int>(random() % 26));
          const double sign = dtype == DType::U32 || random() % 2 == 0 ? 1 : -1;
          x.set(i, dtype == DType::Bool ? static_cast<double>(random() % 2) : sign * size);
        }
        const std::vector<Array> found = jit([&](In in) {
          return std::vector{argsort(in[0], 1, descending), argsort(transpose(in[0], {1, 0}), 0, descending)};
        })({x});
        for (std::int64_t row = 0; row < rows; ++row) {
          std::vector<std::int64_t> wanted(static_cast<std::size_t>(n));
          std::iota(wanted.begin(), wanted.end(), 0);
          std::ranges::stable_sort(wanted, [&](std::int64_t a, std::int64_t b) {
            const double u = x.at(row * n + a), v = x.at(row * n + b);
            return descending ? v < u : u < v;
          });
          for (std::int64_t i = 0; i < n; ++i) {
            const auto place = static_cast<double>(wanted[static_cast<std::size_t>(i)]);
            ASSERT_EQ(found[0].at(row * n + i), place) << name_of(dtype) << ", row " << row << " of " << rows;
            ASSERT_EQ(found[1].at(i * rows + row), place) << name_of(dtype) << ", column " << row << " of " << rows;
          }
        }
      }
}

TEST(Sort, DerivativesGoWithTheElements) {
  const std::vector<Array> at = {f64({0.3, -1, 2, 0.5}), f64({1, 10, 100, 1000})};
  const Function weighted = [](In in) { return std::vector{sum(sort(in[0], 0) * in[1])}; };
  const Array gradient = jit(grad(weighted, {0}))(at)[0];
  const double wanted[] = {10, 1, 1000, 100};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(gradient.at(i), wanted[i]);
}

TEST(Search, FindsWhatBisectionOfTheStandardLibraryFinds) {
  std::mt19937 random(3);
  for (const std::size_t n : {0, 1, 2, 3, 8, 21}) {
    std::vector<double> sorted = numbers(n, random);
    std::ranges::stable_sort(sorted, before);
    const std::vector<double> wanted = numbers(40, random);
    const auto got = jit([](In in) {
      return std::vector{searchsorted(in[0], in[1]), searchsorted(in[0], in[1], true)};
    })({f64(sorted), f64(wanted)});
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto left = std::lower_bound(sorted.begin(), sorted.end(), wanted[i], before) - sorted.begin();
      const auto right = std::upper_bound(sorted.begin(), sorted.end(), wanted[i], before) - sorted.begin();
      EXPECT_EQ(got[0].at(static_cast<std::int64_t>(i)), static_cast<double>(left));
      EXPECT_EQ(got[1].at(static_cast<std::int64_t>(i)), static_cast<double>(right));
    }
  }
}

TEST(InverseTrigonometry, EdgesAreThoseOfC) {
  const std::vector<double> edges = {0.0, -0.0, 1, -1, 0.25, -3, inf, -inf, nan, 1e300, -1e-300};
  std::vector<double> ys, xs;
  for (const double y : edges)
    for (const double x : edges) {
      ys.push_back(y);
      xs.push_back(x);
    }
  const auto got = jit([](In in) {
    return std::vector{atan2(in[0], in[1]), atan(in[0]), asin(in[1]), acos(in[1])};
  })({f64(ys), f64(xs)});
  for (std::size_t i = 0; i < ys.size(); ++i) {
    const double wanted[] = {std::atan2(ys[i], xs[i]), std::atan(ys[i]), std::asin(xs[i]), std::acos(xs[i])};
    for (std::size_t k = 0; k < 4; ++k) {
      const double g = got[k].at(static_cast<std::int64_t>(i));
      SCOPED_TRACE("function " + std::to_string(k) + " at " + std::to_string(ys[i]) + ", " + std::to_string(xs[i]));
      EXPECT_EQ(std::isnan(g), std::isnan(wanted[k]));
      if (std::isnan(g)) continue;
      EXPECT_NEAR(g, wanted[k], 4e-16 * std::fabs(wanted[k]));
      EXPECT_EQ(std::signbit(g), std::signbit(wanted[k]));
    }
  }
  const auto slopes = jit([](In in) {
    const Value one = ones_like(in[0]);
    std::vector<Value> all;
    for (Value (*f)(Value) : {&atan, &asin, &acos})
      all.push_back(jvp([f](In v) { return std::vector{f(v[0])}; }, in, std::vector{one}).second[0]);
    return all;
  })({f64({-0.7, 0, 0.2, 0.999, 1})});
  for (int i = 0; i < 5; ++i) {
    const double x = std::vector{-0.7, 0.0, 0.2, 0.999, 1.0}[static_cast<std::size_t>(i)];
    EXPECT_NEAR(slopes[0].at(i), 1 / (1 + x * x), 1e-15);
    if (x == 1) {
      EXPECT_EQ(slopes[1].at(i), inf);
      EXPECT_EQ(slopes[2].at(i), -inf);
    } else {
      const double wanted = 1 / std::sqrt((1 - x) * (1 + x));
      EXPECT_NEAR(slopes[1].at(i), wanted, 1e-14 * wanted);
      EXPECT_NEAR(slopes[2].at(i), -wanted, 1e-14 * wanted);
    }
  }
}

// Greatest errors over all floats in units of the last place, as measured; here every 1009th is looked at.
TEST(InverseTrigonometry, ErrorsInF32) {
  constexpr std::int64_t n = (std::int64_t{1} << 32) / 1009;
  Array bits(DType::U32, {n});
  for (std::int64_t i = 0; i < n; ++i)
    bits.data<std::uint32_t>()[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(1009 * i);
  const auto got = jit([](In in) {
    const Value x = bitcast(in[0], DType::F32);
    return std::vector{x, asin(x), acos(x), atan(x)};
  })({bits});
  double (*const exact[])(double) = {std::asin, std::acos, std::atan};
  const double most[] = {2.369, 1.140, 2.147};
  for (std::size_t f = 0; f < 3; ++f) {
    double worst = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double wanted = exact[f](got[0].at(i)), found = got[f + 1].at(i);
      ASSERT_EQ(std::isnan(wanted), std::isnan(found)) << got[0].at(i);
      if (std::isnan(wanted)) continue;
      ASSERT_EQ(std::signbit(wanted), std::signbit(found)) << got[0].at(i);
      const int exponent = std::max(std::ilogb(wanted == 0 ? 1e-300 : wanted), -126);
      worst = std::max(worst, std::fabs(found - wanted) / std::ldexp(1.0, exponent - 23));
    }
    EXPECT_LE(worst, most[f]) << "function " << f;
  }
}

TEST(SortErrors, NameWhatCame) {
  const auto message = [](const std::function<Value(In)>& fn, const std::vector<ValueType>& types) {
    try {
      trace([&](In in) { return std::vector<Value>{fn(in)}; }, types);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const ValueType matrix{DType::F32, {2, 3}}, vector{DType::F64, {4}};
  EXPECT_NE(message([](In in) { return searchsorted(in[0], in[1]); }, {matrix, vector}).find("f32[2,3], f64[4]"),
            std::string::npos);
  EXPECT_NE(message([](In in) { return sort(in[0], 2); }, {matrix, vector}).find("argsort"), std::string::npos);
}

}  // namespace
}  // namespace hotloop
