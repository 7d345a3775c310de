// Linear systems of every size on both sides of what is unrolled: against the residual, the interpreter and, in a batch, each alone;
// their derivatives; and the structure of what is compiled.
#include "hotloop/linalg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "ode/linear_solve.h"

namespace hotloop {
namespace {

using In = std::span<const Value>;
constexpr std::int64_t last_unrolled = 6;

Array random_array(DType dtype, const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Array a(dtype, shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, normal(random));
  return a;
}

// A matrix whose pivots are not on its diagonal.
Array matrix(std::int64_t n, unsigned seed, DType dtype = DType::F64) { return random_array(dtype, {n, n}, seed); }

// L L^T of a lower triangle with a diagonal of 1 to 2.
Array positive(std::int64_t n, unsigned seed) {
  const Array l = matrix(n, seed);
  Array a(DType::F64, {n, n});
  const auto at = [&](std::int64_t i, std::int64_t j) { return i == j ? 1.5 : i > j ? l.at(i * n + j) / 2 : 0.0; };
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < n; ++k) sum += at(i, k) * at(j, k);
      a.set(i * n + j, sum);
    }
  return a;
}

std::shared_ptr<const Graph> program(const TracedFunction& fn, const std::vector<Array>& inputs) {
  std::vector<ValueType> types;
  for (const Array& x : inputs) types.push_back({x.dtype(), x.shape()});
  return trace(fn, types);
}

TEST(Linalg, SolvesSystemsOfEverySize) {
  for (std::int64_t n = 1; n <= last_unrolled + 3; ++n)
    for (const std::int64_t k : {0, 1, 3, 8}) {
      const std::vector<Array> inputs{matrix(n, 1), random_array(DType::F64, k == 0 ? Shape{n} : Shape{n, k}, 2)};
      const auto graph =
          program([](In in) { return std::vector{matmul(in[0], linalg::solve(in[0], in[1])) - in[1]}; }, inputs);
      for (const auto& got : {compile(graph)(inputs), ir::evaluate(*graph, inputs)})
        for (std::int64_t i = 0; i < got[0].size(); ++i)
          EXPECT_NEAR(got[0].at(i), 0, 1e-12) << n << " unknowns, " << k << " columns";
    }
}

TEST(Linalg, FactorsAreThoseOfTheExchangedRows) {
  for (std::int64_t n = 1; n <= last_unrolled + 2; ++n) {
    const std::vector<Array> inputs{matrix(n, 3)};
    const auto factors = [](In in) {
      const linalg::LU f = linalg::lu_factor(in[0]);
      return std::vector{f.lu, f.rows, f.parity, linalg::det(in[0])};
    };
    const auto got = compile(program(factors, inputs))(inputs);
    double product = got[2].at(0);
    for (std::int64_t i = 0; i < n; ++i) {
      product *= got[0].at(i * n + i);
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k <= std::min(i, j); ++k)
          sum += (k == i ? 1 : got[0].at(i * n + k)) * got[0].at(k * n + j);
        EXPECT_NEAR(sum, inputs[0].at(static_cast<std::int64_t>(got[1].at(i)) * n + j), 1e-13);
        // Pivoting by rows: no factor is larger than one.
        if (j < i) EXPECT_LE(std::abs(got[0].at(i * n + j)), 1);
      }
    }
    EXPECT_NEAR(got[3].at(0), product, 1e-12 * std::abs(product));
  }
}

TEST(Linalg, CholeskyReadsTheLowerTriangle) {
  for (std::int64_t n = 1; n <= last_unrolled + 3; ++n) {
    std::vector<Array> inputs{positive(n, 4)};
    const Array wanted = inputs[0].clone();
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = i + 1; j < n; ++j) inputs[0].set(i * n + j, std::nan(""));
    const auto fn = [](In in) { return std::vector{linalg::cholesky(in[0])}; };
    const Array l = compile(program(fn, inputs))(inputs)[0];
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < n; ++k) sum += l.at(i * n + k) * l.at(j * n + k);
        EXPECT_NEAR(sum, wanted.at(i * n + j), 1e-13) << n;
        if (j > i) EXPECT_EQ(l.at(i * n + j), 0);
      }
  }
}

TEST(Linalg, WhatHasNoSolutionIsANumber) {
  for (const std::int64_t n : {3, 9}) {
    const std::vector<Array> zeros{Array::zeros(DType::F64, {n, n}), Array::full(DType::F64, {n}, 1)};
    const auto fn = [](In in) {
      return std::vector{linalg::det(in[0]), linalg::solve(in[0], in[1]), linalg::cholesky(-in[0] - 1.0)};
    };
    const auto got = compile(program(fn, zeros))(zeros);
    EXPECT_EQ(got[0].at(0), 0);
    EXPECT_FALSE(std::isfinite(got[1].at(0)));
    EXPECT_TRUE(std::isnan(got[2].at(0)));
  }
}

// A system in each lane of a vector: neither a loop over columns nor a place that is known at run time only.
TEST(Linalg, ABatchOfSmallSystemsIsStraightCode) {
  const auto solve = [](In in) { return std::vector{linalg::solve(in[0], in[1])}; };
  for (const std::int64_t n : {3, 6, 8}) {
    constexpr std::int64_t batch = 37;
    const std::vector<Array> inputs{random_array(DType::F32, {batch, n, n}, 5),
                                    random_array(DType::F32, {batch, n}, 6)};
    const Executable together = compile(program(vmap(solve, {0, 0}), inputs));
    KernelHistory::start();
    const Array got = together(inputs)[0];
    EXPECT_EQ(KernelHistory::stop().at(0).num_loops == 0, n <= last_unrolled) << n;
    for (std::int64_t i = 0; i < batch; ++i) {
      std::vector<Array> one{Array(DType::F32, {n, n}), Array(DType::F32, {n})};
      for (std::int64_t j = 0; j < n * n; ++j) one[0].set(j, inputs[0].at(i * n * n + j));
      for (std::int64_t j = 0; j < n; ++j) one[1].set(j, inputs[1].at(i * n + j));
      const Array alone = compile(program(solve, one))(one)[0];
      for (std::int64_t j = 0; j < n; ++j) EXPECT_EQ(got.at(i * n + j), alone.at(j)) << n;
    }
  }
}

// Of x(t) = (A + t I)^-1 v along t: (-1)^k k! A^-(k+1) v. With factors that are given too, which have no derivative.
TEST(Linalg, DerivativesOfEveryOrderAreTheSystems) {
  for (const std::int64_t n : {3, 8})
    for (const bool is_factored : {false, true}) {
      const auto x_at = [&](In in) {
        Array eye = Array::zeros(DType::F64, {n, n});
        for (std::int64_t i = 0; i < n; ++i) eye.set(i * n + i, 1);
        const Value a = in[1] + in[0] * constant(eye);
        return std::vector{is_factored ? ode::solve_with(a, ode::factorize(a), in[2]) : linalg::solve(a, in[2])};
      };
      const std::vector<Array> inputs{Array::full(DType::F64, {}, 0), positive(n, 7), random_array(DType::F64, {n}, 8)};
      Function along = x_at;
      const auto power = [&](In in) {
        std::vector<Value> powers{linalg::solve(in[1], in[2])};
        for (int k = 1; k < 5; ++k) powers.push_back(linalg::solve(in[1], powers.back()) * constant(-k, DType::F64));
        return powers;
      };
      const auto wanted = compile(program(power, inputs))(inputs);
      for (std::size_t order = 1; order < 5; ++order) {
        along = [along](In in) {
          const auto of_t = [&](In t) { return along(std::vector<Value>{t[0], in[1], in[2]}); };
          return jvp(of_t, std::vector<Value>{in[0]}, std::vector<Value>{ones_like(in[0])}).second;
        };
        const Array got = compile(program(along, inputs))(inputs)[0];
        for (std::int64_t i = 0; i < n; ++i)
          EXPECT_NEAR(got.at(i), wanted[order].at(i), 1e-9 * (1 + std::abs(wanted[order].at(i))))
              << n << " unknowns, order " << order << (is_factored ? ", factors given" : "");
      }
    }
}

TEST(Linalg, WhatDoesNotFitIsSaid) {
  const auto given = [](const ValueType& a, const ValueType& b) {
    return trace([](In in) { return std::vector{linalg::solve(in[0], in[1])}; }, std::vector{a, b});
  };
  EXPECT_THROW(given({DType::F32, {3, 4}}, {DType::F32, {3}}), UserError);
  EXPECT_THROW(given({DType::I32, {3, 3}}, {DType::I32, {3}}), UserError);
  EXPECT_THROW(given({DType::F32, {3, 3}}, {DType::F32, {4}}), UserError);
  EXPECT_THROW(given({DType::F32, {3, 3}}, {DType::F64, {3}}), UserError);
}

}  // namespace
}  // namespace hotloop
