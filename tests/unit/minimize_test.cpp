// Minimisation inside the program: every method of the registry on problems whose minima are known, how each ends, many starts at
// once, and derivatives of minima.
#include "hotloop/minimize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "minimizers/registry.h"

namespace hotloop {
namespace {

using minimizers::Status;

Array vector_of(const std::vector<double>& values, DType dtype = DType::F64) {
  return Array::from(values, {static_cast<std::int64_t>(values.size())}).cast(dtype);
}

// A function of a vector, a start, and the minimum that is reached from it.
struct Problem {
  std::string name;
  Value (*value)(Value x);
  std::vector<double> start;
  double within = 1e-8;  // of the least value, 0, where the gradient is within 1e-5
};

Value rosenbrock(Value x) {
  const std::int64_t n = x.shape()[0];
  const Value head = narrow(x, 0, 0, n - 1), tail = narrow(x, 0, 1, n - 1);
  return sum(square(1.0 - head) + 100.0 * square(tail - square(head)));
}
Value beale(Value x) {
  const Value a = take(x, 0, 0), b = take(x, 0, 1);
  return square(1.5 - a + a * b) + square(2.25 - a + a * square(b)) + square(2.625 - a + a * square(b) * b);
}
Value valley(Value x) {  // the Hessian's eigenvalues go from 1 to 1000
  const Value scale = exp(cast(iota(DType::I32, x.shape(), 0), x.dtype()) * (std::log(1000.0) / 5));
  return 0.5 * sum(scale * square(x - 1.0));
}
Value powell(Value x) {  // whose Hessian is singular at the minimum
  const Value a = take(x, 0, 0), b = take(x, 0, 1), c = take(x, 0, 2), d = take(x, 0, 3);
  return square(a + 10.0 * b) + 5.0 * square(c - d) + square(square(b - 2.0 * c)) + 10.0 * square(square(a - d));
}

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all = {{"rosenbrock", rosenbrock, {-1.2, 1}},
                                           {"rosenbrock of 6", rosenbrock, {-1.2, 1, -1.2, 1, 0.5, 0}},
                                           {"beale", beale, {1, 1}},
                                           {"valley", valley, {3, -1, 2, 0, 5, -4}},
                                           {"powell", powell, {3, -1, 0, 1}, 1e-7}};
  return all;
}

// x, value, gradient norm, iterations, evaluations, status
std::vector<Array> run(const TracedFunction& fn, const Array& start, const std::string& backend = "llvm") {
  CompileOptions options;
  options.backend = backend;
  return jit(fn, options)({start});
}
TracedFunction minimizing(Value (*value)(Value), const minimizers::Descent& method,
                          const MinimizeOptions& options = {}) {
  return [=](std::span<const Value> in) {
    const Minimum m =
        minimize([&](const Tree<Value>& p) { return value(p.leaf()); }, Tree<Value>(in[0]), method, options);
    return std::vector<Value>{m.params.leaf(), m.value, m.gradient_norm, m.iterations, m.evaluations, m.status};
  };
}
Status status_of(const std::vector<Array>& found) {
  return static_cast<Status>(static_cast<std::int32_t>(found[5].at(0)));
}

double gradient_norm(const Problem& problem, const Array& x) {
  const auto value = [&](std::span<const Value> in) { return std::vector<Value>{problem.value(in[0])}; };
  const Array g = jit(grad(value, {0}))({x})[0];
  double largest = 0;
  for (std::int64_t i = 0; i < g.size(); ++i) largest = std::max(largest, std::abs(g.at(i)));
  return largest;
}

TEST(Minimizers, EveryMethodFindsTheMinimum) {
  for (const auto& def : minimizers::all_descents())
    for (const Problem& problem : problems()) {
      const auto found = run(minimizing(problem.value, minimizers::make_descent(def.name), {.value_tolerance = 0}),
                             vector_of(problem.start));
      EXPECT_EQ(status_of(found), Status::Gradient) << def.name << ", " << problem.name;
      EXPECT_NEAR(found[1].at(0), 0, problem.within) << def.name << ", " << problem.name;
      EXPECT_LE(found[2].at(0), 1e-5);
      EXPECT_NEAR(gradient_norm(problem, found[0]), found[2].at(0), 1e-9) << def.name << ", " << problem.name;
      EXPECT_LT(found[4].at(0), 300) << def.name << ", " << problem.name;
    }
}

// In f32 rounding hides what the last steps gain; how far it came is told either way.
TEST(Minimizers, EveryMethodComesNearTheMinimumInF32) {
  for (const auto& def : minimizers::all_descents())
    for (const Problem& problem : problems()) {
      const auto found = run(minimizing(problem.value, minimizers::make_descent(def.name), {.value_tolerance = 0}),
                             vector_of(problem.start, DType::F32));
      EXPECT_EQ(found[1].dtype(), DType::F32);
      EXPECT_NEAR(found[1].at(0), 0, 1e-5) << def.name << ", " << problem.name;
      EXPECT_EQ(status_of(found) == Status::Gradient, found[2].at(0) <= 1e-5) << def.name << ", " << problem.name;
      EXPECT_TRUE(status_of(found) == Status::Gradient || status_of(found) == Status::Stalled) << def.name;
    }
}

TEST(Minimizers, ValuesNeverRise) {
  for (const auto& def : minimizers::all_descents())
    for (const Problem& problem : problems()) {
      double before = std::numeric_limits<double>::infinity();
      for (const std::int64_t most : {0, 1, 3, 8, 21}) {
        const auto found = run(minimizing(problem.value, minimizers::make_descent(def.name), {.max_iterations = most}),
                               vector_of(problem.start));
        EXPECT_LE(found[1].at(0), before * (1 + 1e-15)) << def.name << ", " << problem.name << ", " << most;
        EXPECT_LE(found[3].at(0), static_cast<double>(most));
        before = found[1].at(0);
      }
    }
}

TEST(Minimizers, CompiledIsTheOracle) {
  for (const auto& def : minimizers::all_descents()) {
    const auto fn = minimizing(rosenbrock, minimizers::make_descent(def.name));
    const auto compiled = run(fn, vector_of({-1.2, 1})), oracle = run(fn, vector_of({-1.2, 1}), "interp");
    for (std::size_t i = 0; i < compiled.size(); ++i)
      for (std::int64_t k = 0; k < compiled[i].size(); ++k)
        EXPECT_NEAR(compiled[i].at(k), oracle[i].at(k), 1e-6) << def.name << ", result " << i;
  }
}

TEST(Minimizers, EachStartOfABatchGoesItsOwnWay) {
  for (const auto& def : minimizers::all_descents()) {
    const auto fn = minimizing(rosenbrock, minimizers::make_descent(def.name));
    const int n = 9;
    Array starts(DType::F64, {n, 3});
    for (std::int64_t i = 0; i < starts.size(); ++i) starts.set(i, std::sin(3.0 * static_cast<double>(i)));
    const auto together = jit(vmap(fn, {0}))({starts});
    for (int i = 0; i < n; ++i) {
      const auto alone = run(fn, vector_of({starts.at(3 * i), starts.at(3 * i + 1), starts.at(3 * i + 2)}));
      for (std::size_t r = 0; r < alone.size(); ++r)
        for (std::int64_t k = 0; k < alone[r].size(); ++k)
          EXPECT_EQ(together[r].at(i * alone[r].size() + k), alone[r].at(k))
              << def.name << ", start " << i << ", result " << r;
    }
  }
}

TEST(Minimizers, HowItEndedIsTold) {
  const minimizers::LBFGS lbfgs;
  EXPECT_EQ(status_of(run(minimizing(rosenbrock, lbfgs, {.max_iterations = 3}), vector_of({-1.2, 1}))),
            Status::MaxIterations);
  const auto few = run(minimizing(rosenbrock, lbfgs, {.max_evaluations = 7}), vector_of({-1.2, 1}));
  EXPECT_EQ(status_of(few), Status::MaxEvaluations);
  EXPECT_EQ(few[4].at(0), 7);
  const auto above = minimizing([](Value x) { return rosenbrock(x) + 5.0; }, lbfgs,
                                {.gradient_tolerance = 0, .value_tolerance = 1e-3});
  EXPECT_EQ(status_of(run(above, vector_of({-1.2, 1}))), Status::Value);
  const auto at_minimum = run(minimizing(rosenbrock, lbfgs), vector_of({1, 1}));
  EXPECT_EQ(status_of(at_minimum), Status::Gradient);
  EXPECT_EQ(at_minimum[4].at(0), 1);
  const auto broken = run(minimizing([](Value x) { return sum(log(x)); }, lbfgs), vector_of({-1, 1}));
  EXPECT_EQ(status_of(broken), Status::NonFinite);
  EXPECT_TRUE(std::isnan(broken[1].at(0)));
  EXPECT_EQ(broken[0].at(0), -1);
  // Beyond a pole the line search turns back: the minimum is at 1/1000.
  const auto fenced = run(minimizing([](Value x) { return sum(1000.0 * x - log(x)); }, lbfgs, {.value_tolerance = 0}),
                          vector_of({1e-5, 3}));
  EXPECT_EQ(status_of(fenced), Status::Gradient);
  EXPECT_NEAR(fenced[0].at(0), 1e-3, 1e-9);
  // A kink has no gradient that is small.
  EXPECT_EQ(
      status_of(run(minimizing([](Value x) { return sum(abs(x)); }, lbfgs, {.value_tolerance = 0}), vector_of({1, 3}))),
      Status::Stalled);
  for (const Status s : {Status::Gradient, Status::Value, Status::Step, Status::MaxIterations, Status::MaxEvaluations,
                         Status::Stalled, Status::NonFinite}) {
    EXPECT_FALSE(minimizers::describe(s).empty());
    EXPECT_EQ(minimizers::remedy(s).empty(), s <= Status::Step);
  }
}

TEST(Minimizers, EverythingIsDescribed) {
  for (const auto& def : minimizers::all_descents()) {
    EXPECT_FALSE(def.summary.empty()) << def.name;
    for (const Parameter& p : def.parameters) EXPECT_FALSE(p.doc.empty()) << def.name << "." << p.name;
  }
}

TEST(Minimizers, TreesOfBothPrecisions) {
  const auto fn = [](std::span<const Value> in) {
    const Minimum m = minimize(
        [](const Tree<Value>& p) { return square(p["a"] - 2.0) + sum(square(cast(p["b.c"], DType::F64) - p["a"])); },
        {{"a", in[0]}, {"b", {{"c", in[1]}}}});
    EXPECT_EQ(m.params["b.c"].dtype(), DType::F32);
    EXPECT_EQ(m.gradient_norm.dtype(), DType::F64);
    return std::vector<Value>{m.params["a"], m.params["b.c"]};
  };
  const auto found = jit(fn)({Array::scalar(0.0), vector_of({1, 5}, DType::F32)});
  EXPECT_NEAR(found[0].at(0), 2, 1e-5);
  EXPECT_NEAR(found[1].at(1), 2, 1e-5);
}

// The least x of sum(x^4 / 4 + x^2 / 2 - theta x) + sum(x)^2 / 10, by theta: the Hessian is diag(3 x^2 + 1) + 1/5.
std::vector<Value> length_of_minimum(std::span<const Value> in) {
  const Value theta = in[0];
  const Minimum m = minimize(
      [&](const Tree<Value>& p) {
        const Value x = p.leaf();
        return sum(square(square(x)) * 0.25 + square(x) * 0.5 - theta * x) + 0.1 * square(sum(x));
      },
      Tree<Value>(zeros_like(theta)), minimizers::LBFGS(), {.gradient_tolerance = 1e-11, .value_tolerance = 0});
  return {sum(square(m.params.leaf())), m.value};
}
std::vector<Value> least_value(std::span<const Value> in) { return {length_of_minimum(in)[1]}; }

// With few parameters by a factorised Hessian, with many by conjugate gradients.
TEST(Minimizers, TheDerivativeIsThatOfTheMinimum) {
  for (const int n : {3, 520}) {
    std::vector<double> at, direction;
    for (int i = 0; i < n; ++i) {
      at.push_back(0.3 * (i % 5) - 0.4);
      direction.push_back(0.01 * (i % 7) - 0.02);
    }
    const auto moved = [&](double h) {
      std::vector<double> theta = at;
      for (std::size_t i = 0; i < theta.size(); ++i) theta[i] += h * direction[i];
      return vector_of(theta);
    };
    const auto along = [&](const Array& g) {
      double total = 0;
      for (std::int64_t i = 0; i < g.size(); ++i) total += g.at(i) * direction[static_cast<std::size_t>(i)];
      return total;
    };
    const double h = 1e-3;
    for (const TracedFunction& fn : {TracedFunction(length_of_minimum), TracedFunction(least_value)}) {
      const Jit value = jit(fn), gradient = jit(grad(fn, {0}));
      const auto difference = [&](const auto& f) { return (f(moved(h)) - f(moved(-h))) / (2 * h); };
      const double first = difference([&](const Array& t) { return value({t})[0].at(0); });
      EXPECT_NEAR(along(gradient({moved(0)})[0]), first, 1e-6 * std::abs(first) + 1e-9) << n;
      const double second = difference([&](const Array& t) { return along(gradient({t})[0]); });
      const auto forward = [&](const TracedFunction& f) {
        return TracedFunction(
            [=](std::span<const Value> in) { return jvp(f, in.first(1), std::vector<Value>{in[1]}).second; });
      };
      const Array v = vector_of(direction);
      EXPECT_NEAR(jit(forward(fn))({moved(0), v})[0].at(0), first, 1e-6 * std::abs(first) + 1e-9) << n;
      const Jit hvp = jit(forward(grad(fn, {0})));
      EXPECT_NEAR(along(hvp({moved(0), v})[0]), second, 1e-5 * std::abs(second)) << n;
      const double third = difference([&](const Array& t) { return along(hvp({t, v})[0]); });
      const TracedFunction curvature = [&](std::span<const Value> in) {
        const auto slope = [&](std::span<const Value> at) { return forward(fn)(std::vector<Value>{at[0], in[1]}); };
        return forward(slope)(in);
      };
      EXPECT_NEAR(along(jit(grad(curvature, {0}))({moved(0), v})[0]), third, 1e-5 * std::abs(third)) << n;
      EXPECT_NEAR(jit(forward([&](std::span<const Value> at) {
                    return curvature(std::vector<Value>{at[0], constant(v)});
                  }))({moved(0), v})[0]
                      .at(0),
                  third, 1e-5 * std::abs(third))
          << n;
    }
  }
}

TEST(Minimizers, WhatDoesNotFitIsAnError) {
  const auto fails = [](const TracedFunction& fn) {
    try {
      run(fn, vector_of({1, 2}));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(fails(minimizing([](Value x) { return x; }, minimizers::LBFGS())).find("must give a float scalar"),
            std::string::npos);
  EXPECT_NE(fails(minimizing(rosenbrock, minimizers::LBFGS(), {.max_iterations = -1}))
                .find("max_iterations must not be negative"),
            std::string::npos);
  EXPECT_THROW(minimizers::LBFGS(0), UserError);
  EXPECT_THROW(minimizers::make_descent("lbgfs"), UserError);
}

}  // namespace
}  // namespace hotloop
