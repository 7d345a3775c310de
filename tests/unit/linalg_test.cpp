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
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using In = std::span<const Value>;
constexpr std::int64_t last_unrolled = 6;
// Straight code, loops over columns, and blocks, whole ones and not.
const std::vector<std::int64_t> sizes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33, 45, 48};

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
  for (const std::int64_t n : sizes)
    for (const std::int64_t k : {0, 1, 3, 20}) {
      const std::vector<Array> inputs{matrix(n, 1), random_array(DType::F64, k == 0 ? Shape{n} : Shape{n, k}, 2)};
      const auto graph =
          program([](In in) { return std::vector{matmul(in[0], linalg::solve(in[0], in[1])) - in[1]}; }, inputs);
      for (const auto& got : {compile(graph)(inputs), ir::evaluate(*graph, inputs)})
        for (std::int64_t i = 0; i < got[0].size(); ++i)
          EXPECT_NEAR(got[0].at(i), 0, n > 9 ? 1e-11 : 1e-12) << n << " unknowns, " << k << " columns";
    }
}

TEST(Linalg, FactorsAreThoseOfTheExchangedRows) {
  for (const std::int64_t n : sizes) {
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
  for (const std::int64_t n : sizes) {
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
        EXPECT_NEAR(sum, wanted.at(i * n + j), n > 9 ? 1e-12 : 1e-13) << n;
        if (j > i) EXPECT_EQ(l.at(i * n + j), 0);
      }
  }
}

TEST(Linalg, WhatHasNoSolutionIsANumber) {
  for (const std::int64_t n : {3, 9, 47}) {
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

std::size_t copies_in_loops(const kernel::Block& block, bool in_loop) {
  std::size_t found = 0;
  for (const kernel::Stmt& stmt : block) {
    if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) found += copies_in_loops(loop->body, true);
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) found += copies_in_loops(grid->body, in_loop);
    if (const auto* map = std::get_if<kernel::Map>(&stmt.node)) found += in_loop && map->name == "copy" ? 1 : 0;
  }
  return found;
}

// What is left of a matrix lies at one place, though each row of a batch reads it at its own pivot.
TEST(Linalg, EliminationIsInPlace) {
  const auto solve = [](In in) { return std::vector{linalg::solve(in[0], in[1])}; };
  for (const std::int64_t n : {8, 20}) {
    const std::vector<Array> inputs{random_array(DType::F64, {40, n, n}, 5), random_array(DType::F64, {40, n}, 6)};
    const auto optimized = passes::optimize(*program(vmap(solve, {0, 0}), inputs), {});
    EXPECT_EQ(copies_in_loops(schedule(*optimized, {}).body, false), 0u) << n;
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

// Large matrices are products of blocks, in any program; so is what comes back through them.
TEST(Linalg, LargeMatricesAreProductsOfBlocks) {
  const auto num_dots = [](const TracedFunction& fn, std::int64_t n) {
    const std::vector<Array> inputs{positive(n, 9), random_array(DType::F64, {n}, 10)};
    const Executable run = compile(program(fn, inputs));
    KernelHistory::start();
    run(inputs);
    return KernelHistory::stop().at(0).num_dots;
  };
  const std::vector<std::pair<const char*, TracedFunction>> programs = {
      {"solve", [](In in) { return std::vector{linalg::solve(in[0], in[1])}; }},
      {"factors", [](In in) { return std::vector{linalg::lu_solve(linalg::lu_factor(in[0]), in[1])}; }},
      {"cholesky", [](In in) { return std::vector{linalg::cholesky(in[0])}; }},
      {"slogdet", [](In in) { return std::vector{linalg::slogdet(in[0]).second}; }},
      {"cholesky_solve", [](In in) { return std::vector{linalg::cholesky_solve(in[0], in[1])}; }},
  };
  for (const auto& [name, fn] : programs) {
    EXPECT_NEAR(num_dots(fn, 7), num_dots(fn, 32), 1) << name;  // short ones may be sums
    EXPECT_GE(num_dots(fn, 45), num_dots(fn, 32) + 2) << name;
    EXPECT_EQ(num_dots(fn, 45), num_dots(fn, 90)) << name;
  }
}

// By columns and by blocks.
TEST(Linalg, DerivativesOfLoopsAgreeInBothModesAndWithDifferences) {
  const auto parts_of = [](Value x) {
    const Value flat = reshape(x, {x.shape().size()});
    return sum(flat * cos(cast(iota(DType::I32, flat.shape(), 0), DType::F64)));
  };
  const std::vector<std::pair<const char*, std::function<Value(Value, Value)>>> functions = {
      {"solve", [](Value a, Value b) { return linalg::solve(a, b); }},
      {"inverse", [](Value a, Value) { return linalg::solve(a, a * a); }},
      {"lower", [](Value a, Value b) { return linalg::solve_triangular(a, b, false); }},
      {"upper", [](Value a, Value b) { return linalg::solve_triangular(a, b, true); }},
      {"given factors", [](Value a, Value b) { return ode::solve_with(a, ode::factorize(a), b); }},
      {"slogdet", [](Value a, Value) { return linalg::slogdet(a).second; }},
      {"det", [](Value a, Value) { return linalg::det(a) * 1e-12; }},
      {"cholesky", [](Value a, Value) { return linalg::cholesky(a); }},
      {"cholesky_solve", [](Value a, Value b) { return linalg::cholesky_solve(linalg::cholesky(a), b); }},
  };
  for (const std::int64_t n : {11, 47})
    for (const auto& [name, fn] : functions) {
      const std::vector<Array> inputs{positive(n, 11), random_array(DType::F64, {n}, 12), matrix(n, 13)};
      const auto along = [&](In in) { return std::vector{parts_of(fn(in[0] + in[3] * in[2], in[1] * (1.0 + in[3])))}; };
      const auto both = [&](In in) {
        const Value t = zeros_like(in[1]), zero = sum(t * t);
        const auto of_t = [&](In v) { return along(std::vector<Value>{in[0], in[1], in[2], v[0]}); };
        const auto slope = jvp(of_t, std::vector<Value>{zero}, std::vector<Value>{ones_like(zero)}).second[0];
        const auto value = [&](In v) { return std::vector{parts_of(fn(v[0], v[1]))}; };
        const auto gradient = grad(value, {0, 1})(in.first(2));
        const double h = 1e-6;
        const Value ahead = of_t(std::vector<Value>{zero + h})[0], behind = of_t(std::vector<Value>{zero - h})[0];
        return std::vector{slope, sum(gradient[0] * in[2]) + sum(gradient[1] * in[1]), (ahead - behind) / (2 * h)};
      };
      const auto got = compile(program(both, inputs))(inputs);
      const double wanted = got[2].at(0), scale = 1 + std::abs(wanted);
      EXPECT_NEAR(got[0].at(0), wanted, 1e-5 * scale) << name << n;
      EXPECT_NEAR(got[1].at(0), got[0].at(0), 1e-8 * scale) << name << n;
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
