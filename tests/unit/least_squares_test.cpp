// Least squares inside the program: every method of the registry on the problems of Moré, Garbow and Hillstrom (ACM TOMS 7, 1981) and a fit,
// how each ends, many starts at once, and derivatives of minima.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/jit.h"
#include "hotloop/minimize.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "minimizers/registry.h"

namespace hotloop {
namespace {

using minimizers::LeastSquares;
using minimizers::Status;

Array vector_of(const std::vector<double>& values, DType dtype = DType::F64) {
  return Array::from(values, {static_cast<std::int64_t>(values.size())}).cast(dtype);
}

struct Problem {
  std::string name;
  Value (*residuals)(Value x);
  std::vector<double> start, minimum;
  double within = 1e-5;  // of the minimum, relative to 1 + |minimum|
};

Value part(Value x, std::int64_t i) { return take(x, 0, i); }
Value rosenbrock(Value x) {
  const Value parts[] = {10.0 * (part(x, 1) - square(part(x, 0))), 1.0 - part(x, 0)};
  return stack(parts, 0);
}
Value powell(Value x) {  // whose Jacobian is singular at the minimum
  const Value a = part(x, 0), b = part(x, 1), c = part(x, 2), d = part(x, 3);
  const Value parts[] = {a + 10.0 * b, std::sqrt(5.0) * (c - d), square(b - 2.0 * c), std::sqrt(10.0) * square(a - d)};
  return stack(parts, 0);
}
Value badly_scaled(Value x) {  // Brown
  const Value parts[] = {part(x, 0) - 1e6, part(x, 1) - 2e-6, part(x, 0) * part(x, 1) - 2.0};
  return stack(parts, 0);
}
// y = 3 exp(-1.3 t) + 0.5, at 30 times, with an oscillation that the model lacks.
Value decay(Value x) {
  const Value t = cast(iota(DType::I32, {30}, 0), x.dtype()) * (4.0 / 29);
  const Value seen = 3.0 * exp(-1.3 * t) + 0.5 + 0.01 * sin(20.0 * t);
  return part(x, 0) * exp(-part(x, 1) * t) + part(x, 2) - seen;
}

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all = {{"rosenbrock", rosenbrock, {-1.2, 1}, {1, 1}},
                                           {"powell", powell, {3, -1, 0, 1}, {0, 0, 0, 0}, 2e-3},
                                           {"badly scaled", badly_scaled, {1, 1}, {1e6, 2e-6}},
                                           {"decay", decay, {1, 1, 0}, {3, 1.3, 0.5}, 1e-2}};
  return all;
}

// With its settings as they are, and with each flag turned.
std::vector<std::pair<std::string, LeastSquares>> methods() {
  std::vector<std::pair<std::string, LeastSquares>> all;
  for (const auto& def : minimizers::all_least_squares()) {
    all.emplace_back(def.name, minimizers::make_least_squares(def.name));
    for (const Parameter& p : def.parameters)
      if (const bool* flag = std::get_if<bool>(&p.fallback))
        all.emplace_back(def.name + ", " + p.name, minimizers::make_least_squares(def.name, {{p.name, !*flag}}));
  }
  return all;
}

TracedFunction fitting(Value (*residuals)(Value), const LeastSquares& method, const LeastSquaresOptions& options = {}) {
  return [=](std::span<const Value> in) {
    const auto of = [&](const Tree<Value>& p) { return Tree<Value>(residuals(p.leaf())); };
    const Minimum m = least_squares(of, Tree<Value>(in[0]), method, options);
    return std::vector<Value>{m.params.leaf(), m.value, m.gradient_norm, m.iterations, m.evaluations, m.status};
  };
}
std::vector<Array> run(const TracedFunction& fn, const Array& start, const std::string& backend = "llvm") {
  CompileOptions options;
  options.backend = backend;
  return jit(fn, options)({start});
}
Status status_of(const std::vector<Array>& found) {
  return static_cast<Status>(static_cast<std::int32_t>(found[5].at(0)));
}

TEST(LeastSquares, EveryMethodFindsTheMinimum) {
  for (const auto& [name, method] : methods())
    for (const Problem& problem : problems())
      for (const DType dtype : {DType::F64, DType::F32}) {
        const auto found = run(fitting(problem.residuals, method), vector_of(problem.start, dtype));
        EXPECT_LE(status_of(found), Status::Step) << name << ", " << problem.name;
        EXPECT_LT(found[4].at(0), 50) << name << ", " << problem.name;
        for (std::size_t i = 0; i < problem.minimum.size(); ++i)
          EXPECT_NEAR(found[0].at(static_cast<std::int64_t>(i)), problem.minimum[i],
                      problem.within * (1 + problem.minimum[i]))
              << name << ", " << problem.name << ", " << i;
        // What it says of the end is so.
        const auto at_end = [&](std::span<const Value> in) {
          return std::vector<Value>{0.5 * sum(square(problem.residuals(in[0])))};
        };
        const auto value_and_gradient = jit(value_and_grad(at_end, {0}))({found[0]});
        double norm = 0;
        for (std::int64_t i = 0; i < value_and_gradient[1].size(); ++i)
          norm = std::max(norm, std::abs(value_and_gradient[1].at(i)));
        const double resolution = dtype == DType::F64 ? 1e-12 : 1e-4;
        EXPECT_NEAR(found[1].at(0), value_and_gradient[0].at(0), resolution * (1 + found[1].at(0)))
            << name << ", " << problem.name;
        if (dtype == DType::F64) {
          EXPECT_NEAR(found[2].at(0), norm, 1e-8 * (1 + norm)) << name << ", " << problem.name;
        }
      }
}

TEST(LeastSquares, ValuesNeverRise) {
  for (const auto& [name, method] : methods())
    for (const Problem& problem : problems()) {
      double before = std::numeric_limits<double>::infinity();
      for (const std::int64_t most : {0, 1, 3, 8}) {
        const auto found = run(fitting(problem.residuals, method, {.max_iterations = most}), vector_of(problem.start));
        EXPECT_LE(found[1].at(0), before) << name << ", " << problem.name << ", " << most;
        EXPECT_LE(found[3].at(0), static_cast<double>(most));
        before = found[1].at(0);
      }
    }
}

TEST(LeastSquares, CompiledIsTheOracle) {
  for (const auto& [name, method] : methods()) {
    const auto fn = fitting(decay, method);
    const auto compiled = run(fn, vector_of({1, 1, 0})), oracle = run(fn, vector_of({1, 1, 0}), "interp");
    for (const std::size_t i : {0, 1, 3, 4, 5})
      for (std::int64_t k = 0; k < compiled[i].size(); ++k)
        EXPECT_NEAR(compiled[i].at(k), oracle[i].at(k), 1e-9) << name << ", result " << i;
  }
}

TEST(LeastSquares, EachStartOfABatchGoesItsOwnWay) {
  for (const auto& [name, method] : methods()) {
    const auto fn = fitting(decay, method);
    const int n = 7;
    Array starts(DType::F64, {n, 3});
    for (std::int64_t i = 0; i < starts.size(); ++i) starts.set(i, 1 + std::sin(3.0 * static_cast<double>(i)));
    const auto together = jit(vmap(fn, {0}))({starts});
    for (int i = 0; i < n; ++i) {
      const auto alone = run(fn, vector_of({starts.at(3 * i), starts.at(3 * i + 1), starts.at(3 * i + 2)}));
      for (std::size_t r = 0; r < alone.size(); ++r)
        for (std::int64_t k = 0; k < alone[r].size(); ++k)
          EXPECT_EQ(together[r].at(i * alone[r].size() + k), alone[r].at(k))
              << name << ", start " << i << ", result " << r;
    }
  }
}

TEST(LeastSquares, HowItEndedIsTold) {
  const minimizers::LevenbergMarquardt lm;
  const Array start = vector_of({-1.2, 1});
  EXPECT_EQ(status_of(run(fitting(rosenbrock, lm, {.max_iterations = 2}), start)), Status::MaxIterations);
  const auto few = run(fitting(rosenbrock, lm, {.max_evaluations = 4}), start);
  EXPECT_EQ(status_of(few), Status::MaxEvaluations);
  EXPECT_EQ(few[4].at(0), 4);
  EXPECT_EQ(status_of(run(fitting(decay, lm, {.gradient_tolerance = 0, .step_tolerance = 0}), vector_of({1, 1, 0}))),
            Status::Value);
  EXPECT_EQ(status_of(run(fitting(decay, lm, {.gradient_tolerance = 0, .value_tolerance = 0}), vector_of({1, 1, 0}))),
            Status::Step);
  const auto at_minimum = run(fitting(rosenbrock, lm), vector_of({1, 1}));
  EXPECT_EQ(status_of(at_minimum), Status::Gradient);
  EXPECT_EQ(at_minimum[4].at(0), 1);
  EXPECT_EQ(status_of(run(fitting([](Value x) { return log(x); }, lm), start)), Status::NonFinite);
  // What the residuals do not depend on stays where it is.
  for (const bool scaled : {false, true}) {
    const auto idle =
        run(fitting([](Value x) { return exp(part(x, 0)) - 2.0; }, minimizers::LevenbergMarquardt(1e-3, scaled)),
            vector_of({0, 7}));
    EXPECT_EQ(status_of(idle), Status::Gradient);
    EXPECT_NEAR(idle[0].at(0), std::log(2.0), 1e-8);
    EXPECT_EQ(idle[0].at(1), 7);
  }
}

// A 1e6 times larger and b 1e3 times smaller than 1: columns of J whose squares are 1e18 apart.
Value of_units(Value x) {
  const Value t = cast(iota(DType::I32, {40}, 0), x.dtype()) * (3000.0 / 39);
  return part(x, 0) * exp(-part(x, 1) * t) - 2.3e6 * exp(-1.1e-3 * t);
}

TEST(LeastSquares, UnitsDoNotMatterToAScaledMethod) {
  for (const DType dtype : {DType::F64, DType::F32}) {
    const auto found =
        run(fitting(of_units, minimizers::LevenbergMarquardt(1e-3, true)), vector_of({1e6, 1e-3}, dtype));
    EXPECT_LE(status_of(found), Status::Step);
    EXPECT_LT(found[4].at(0), 10);
    EXPECT_NEAR(found[0].at(0) / 2.3e6, 1, 1e-5);
    EXPECT_NEAR(found[0].at(1) / 1.1e-3, 1, 1e-5);
  }
}

// Damping that is large beside a column makes steps short, which is not to have arrived.
TEST(LeastSquares, AShortStepIsNoEndWhereDampingMadeIt) {
  for (const DType dtype : {DType::F64, DType::F32})
    for (const double damping : {1e-3, 1.0}) {
      const auto found = run(fitting(of_units, minimizers::LevenbergMarquardt(damping)), vector_of({1e6, 1e-3}, dtype));
      EXPECT_TRUE(status_of(found) > Status::Step || std::abs(found[0].at(0) / 2.3e6 - 1) < 1e-4)
          << found[0].at(0) << ", " << found[5].at(0);
      EXPECT_GT(found[3].at(0), 0);
    }
  // By far less than the largest column, but enough to get there.
  const auto apart = [](Value x) {
    const Value t = cast(iota(DType::I32, {30}, 0), x.dtype()) / 29.0;
    return exp(-part(x, 0) / 1e4 * t) * (1.0 + part(x, 1) * 1e4) - 3.0 * exp(-1.7 * t);
  };
  const auto found = run(fitting(apart, minimizers::LevenbergMarquardt()), vector_of({1e4, 1e-4}));
  EXPECT_LE(status_of(found), Status::Step);
  EXPECT_NEAR(found[0].at(0), 1.7e4, 1);
  EXPECT_NEAR(found[0].at(1), 2e-4, 1e-8);
}

TEST(LeastSquares, TreesOfBothPrecisions) {
  const auto fn = [](std::span<const Value> in) {
    const auto residuals = [](const Tree<Value>& p) -> Tree<Value> {
      return {{"near", cast(p["b"], DType::F64) - p["a"]}, {"there", p["a"] - 2.0}};
    };
    const Minimum m = least_squares(residuals, {{"a", in[0]}, {"b", in[1]}});
    return std::vector<Value>{m.params["a"], m.params["b"], m.value};
  };
  const auto found = jit(fn)({Array::scalar(0.0), vector_of({1, 5}, DType::F32)});
  EXPECT_NEAR(found[0].at(0), 2, 1e-6);
  EXPECT_EQ(found[1].dtype(), DType::F32);
  EXPECT_NEAR(found[1].at(1), 2, 1e-6);
}

// The best rate of a decay, by what was seen: of first and second order, against differences.
TEST(LeastSquares, TheDerivativeIsThatOfTheMinimum) {
  const TracedFunction best = [](std::span<const Value> in) {
    const Value t = cast(iota(DType::I32, {6}, 0), DType::F64) * 0.4;
    const auto residuals = [&](const Tree<Value>& p) { return Tree<Value>(exp(-p.leaf() * t) - in[0]); };
    const Minimum m = least_squares(residuals, Tree<Value>(constant(1, DType::F64)), minimizers::LevenbergMarquardt(),
                                    {.gradient_tolerance = 1e-13, .value_tolerance = 0, .step_tolerance = 0});
    return std::vector<Value>{m.params.leaf() + 10.0 * m.value};
  };
  const std::vector<double> seen = {1, 0.7, 0.3, 0.25, 0.1, 0.05};
  const Jit value = jit(best), gradient = jit(grad(best, {0})), second = jit(hessian(best));
  const Array g = gradient({vector_of(seen)})[0], h = second({vector_of(seen)})[0];
  const double step = 1e-3;  // the minimum is known to about 1e-9, beyond which the value's rounding hides a decrease
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto moved = [&](double by) {
      auto at = seen;
      at[i] += by;
      return vector_of(at);
    };
    const auto k = static_cast<std::int64_t>(i);
    EXPECT_NEAR(g.at(k), (value({moved(step)})[0].at(0) - value({moved(-step)})[0].at(0)) / (2 * step), 2e-5) << i;
    const Array up = gradient({moved(step)})[0], down = gradient({moved(-step)})[0];
    for (std::int64_t j = 0; j < 6; ++j)
      EXPECT_NEAR(h.at(6 * j + k), (up.at(j) - down.at(j)) / (2 * step), 1e-4) << i << ", " << j;
  }
}

TEST(LeastSquares, WhatDoesNotFitIsAnError) {
  const minimizers::LevenbergMarquardt lm;
  const Array start = vector_of({-1.2, 1});
  EXPECT_THROW(run(fitting([](Value x) { return cast(x, DType::I32); }, lm), start), UserError);
  EXPECT_THROW(run(fitting(rosenbrock, lm, {.step_tolerance = -1}), start), UserError);
  EXPECT_THROW(minimizers::LevenbergMarquardt(0), UserError);
  EXPECT_THROW(minimizers::make_least_squares("ml"), UserError);
  for (const auto& def : minimizers::all_least_squares()) {
    EXPECT_FALSE(def.summary.empty()) << def.name;
    for (const Parameter& p : def.parameters) EXPECT_FALSE(p.doc.empty()) << def.name << "." << p.name;
  }
}

}  // namespace
}  // namespace hotloop
