// Every solver of the registry has its order; coefficients of all kinds check themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hotloop/jit.h"
#include "ode/esdirk.h"
#include "ode/registry.h"
#include "ode/rosenbrock.h"
#include "ode/tableau.h"
#include "ode_problems.h"

namespace hotloop {
namespace {

using ode::Options;

class EverySolver : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> solver_names() {
  std::vector<std::string> names;
  for (const auto& def : ode::all_solvers()) names.push_back(def.name);
  return names;
}

// Largest error at t = 1 of q'' = -q + sin(2 t) / 2, in a form that suits every solver.
double error_with(const std::string& solver, int steps) {
  const auto fn = [&](std::span<const Value> in) {
    const Tree<Value> y0 = {{"q", in[0]}, {"v", in[1]}};
    const ode::Field field = [](Value t, const Tree<Value>& y, const Tree<Value>&) {
      return Tree<Value>{{"q", y["v"]}, {"v", -y["q"] + 0.5 * sin(2 * t)}};
    };
    Options options;
    options.dt0 = 1.0 / steps;
    options.controller = ode::ConstantStep();
    const auto s = ode::solve(field, ode::make_solver(solver), 0, 1, y0, options);
    return std::vector<Value>{s.y1["q"], s.y1["v"], s.stats.num_steps, s.result};
  };
  const auto got = jit(fn)({Array::scalar(0.3), Array::scalar(-0.2)});
  EXPECT_EQ(got[2].at(0), steps);
  EXPECT_EQ(got[3].at(0), 0);
  // q = a cos t + b sin t - sin(2 t) / 6.
  const double a = 0.3, b = -0.2 + 1.0 / 3;
  return std::max(std::abs(got[0].at(0) - (a * std::cos(1) + b * std::sin(1) - std::sin(2) / 6)),
                  std::abs(got[1].at(0) - (-a * std::sin(1) + b * std::cos(1) - std::cos(2) / 3)));
}

TEST_P(EverySolver, ConvergesWithItsOrder) {
  const ode::Solver solver = ode::make_solver(GetParam());
  const int order = solver.rule().order();
  const int coarse = order >= 7 ? 2 : solver.rule().is_implicit() && order >= 5 ? 3 : 16;
  const double slope = std::log2(error_with(GetParam(), coarse) / error_with(GetParam(), 2 * coarse));
  EXPECT_GT(slope, order - 0.4);
  EXPECT_LT(slope, order + 1.2);
}

INSTANTIATE_TEST_SUITE_P(All, EverySolver, ::testing::ValuesIn(solver_names()),
                         [](const auto& info) { return info.param; });

TEST(Tableau, RefusesWrongCoefficients) {
  ode::Tableau t{.name = "wrong", .order = 2, .c = {0, 0.5}, .a = {{}, {0.5}}, .b = {0, 1}};
  EXPECT_NO_THROW(t.check(1e-13));
  t.order = 3;
  EXPECT_THROW(t.check(1e-13), InternalError);
  t.order = 2;
  t.c[1] = 0.6;
  EXPECT_THROW(t.check(1e-13), InternalError);
}

// Hosea and Shampine 1996: the trapezoidal rule, then a backward difference.
TEST(Esdirk, RefusesWrongCoefficients) {
  const double g = 1 - std::sqrt(0.5), w = std::sqrt(0.125);
  const ode::Esdirk right{.name = "tr-bdf2",
                          .order = 2,
                          .gamma = g,
                          .c = {0, 2 * g, 1},
                          .a = {{}, {g}, {w, w}},
                          .predictor = {{}, {1}, {1, 0}},
                          .error = {0.1, 0.1, -0.2}};
  EXPECT_NO_THROW(right.check(1e-13));
  ode::Esdirk wrong = right;
  wrong.error[0] = 0.2;
  EXPECT_THROW(wrong.check(1e-13), InternalError);
  wrong = right;
  wrong.order = 3;
  EXPECT_THROW(wrong.check(1e-13), InternalError);
}

// Verwer, Spee, Blom and Hundsdorfer 1999, of order 2 for any gamma, in both forms.
TEST(Rosenbrock, RefusesWrongCoefficients) {
  const double g = 1 + std::sqrt(0.5);
  const ode::Rosenbrock right{.name = "ros2",
                              .a = {{0, 0}, {1, 0}},
                              .gamma = {{g, 0}, {-2 * g, g}},
                              .b = {0.5, 0.5},
                              .b_hat = {1, 0},
                              .dense = {{0.5, 0.5}},
                              .order = 2,
                              .embedded_order = 1,
                              .dense_order = 1};
  const std::vector<double> alpha = {0, 1}, gamma = {g, -g};
  EXPECT_NO_THROW(right.check(alpha, gamma, 1e-13));
  const auto transformed = ode::Rosenbrock::from_transformed({.name = "ros2",
                                                              .a = {{0, 0}, {1 / g, 0}},
                                                              .gamma = {},
                                                              .b = {1.5 / g, 0.5 / g},
                                                              .b_hat = {1 / g, 0},
                                                              .dense = {{1.5 / g, 0.5 / g}},
                                                              .order = 2,
                                                              .embedded_order = 1,
                                                              .dense_order = 1},
                                                             {{0, 0}, {-2 / g, 0}}, g);
  EXPECT_NO_THROW(transformed.check(alpha, gamma, 1e-13));
  for (const auto& spoil : {+[](ode::Rosenbrock& m) {
                              m.b = {0.4, 0.6};
                            },
                            +[](ode::Rosenbrock& m) { m.b_hat[1] = 1; },
                            +[](ode::Rosenbrock& m) {
                              m.dense[0] = {0.6, 0.4};
                            },
                            +[](ode::Rosenbrock& m) { m.gamma[1][0] = 0; }}) {
    ode::Rosenbrock wrong = right;
    spoil(wrong);
    EXPECT_THROW(wrong.check(alpha, gamma, 1e-13), InternalError);
  }
}

}  // namespace
}  // namespace hotloop
