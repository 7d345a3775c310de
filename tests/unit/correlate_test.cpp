// correlate, compiled and by the interpreter.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"

namespace hotloop {
namespace {

using In = std::span<const Value>;

Array normal(std::int64_t n, DType dtype, std::mt19937& random) {
  std::normal_distribution<double> draw;
  Array x(dtype, {n});
  for (std::int64_t i = 0; i < n; ++i) x.set(i, draw(random));
  return x;
}

TEST(Correlate, IsASumOfProductsAndSoAreItsGradients) {
  std::mt19937 random(3);
  for (const DType dtype : {DType::F32, DType::F64})
    for (const auto& [n, k] : {std::pair{1, 1}, {7, 3}, {9, 8}, {5, 5}, {100, 17}, {40, 39}}) {
      const Array x = normal(n, dtype, random), w = normal(k, dtype, random);
      const std::int64_t count = n - k + 1;
      const auto fn = [](In in) { return std::vector{sum(square(correlate(in[0], in[1])))}; };
      const auto both = [&](In in) {
        auto results = value_and_grad(fn, {0, 1})(in);
        results.push_back(correlate(in[0], in[1]));
        return results;
      };
      const auto graph = trace(both, std::vector{ValueType{dtype, {n}}, ValueType{dtype, {k}}});
      std::vector<double> y(static_cast<std::size_t>(count)), by_x(static_cast<std::size_t>(n)),
          by_w(static_cast<std::size_t>(k));
      const auto each = [&](const auto& visit) {
        for (std::int64_t i = 0; i < count; ++i)
          for (std::int64_t j = 0; j < k; ++j)
            visit(static_cast<std::size_t>(i), static_cast<std::size_t>(j), x.at(i + j), w.at(j));
      };
      each([&](std::size_t i, std::size_t, double a, double b) { y[i] += a * b; });
      each([&](std::size_t i, std::size_t j, double a, double b) {
        by_x[i + j] += 2 * y[i] * b;
        by_w[j] += 2 * y[i] * a;
      });
      const std::vector<Array> inputs{x, w};
      for (const auto& got : {compile(graph)(inputs), ir::evaluate(*graph, inputs)}) {
        const std::vector<const std::vector<double>*> wanted{&by_x, &by_w, &y};
        for (std::size_t r = 0; r < 3; ++r)
          for (std::size_t i = 0; i < wanted[r]->size(); ++i)
            EXPECT_NEAR(got[r + 1].at(static_cast<std::int64_t>(i)), (*wanted[r])[i],
                        dtype == DType::F32 ? 1e-3 : 1e-11)
                << n << ", " << k << ", result " << r << ", place " << i;
      }
    }
}

TEST(Correlate, WantsASecondVectorThatIsNoLonger) {
  const auto message = [](std::int64_t n, std::int64_t k) -> std::string {
    try {
      trace([](In in) { return std::vector{correlate(in[0], in[1])}; },
            std::vector{ValueType{DType::F32, {n}}, ValueType{DType::F32, {k}}});
    } catch (const UserError& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_EQ(
      message(2, 3),
      "[correlate] there must be two vectors of one dtype, the second one with at least one element and no longer. "
      "Received: f32[2] and f32[3]. Try: pad().");
  EXPECT_EQ(message(2, 2), "none");
}

}  // namespace
}  // namespace hotloop
