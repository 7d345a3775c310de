// The global error of every explicit solver on DETEST, against closed forms and high-accuracy references.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "detest.h"
#include "ode/registry.h"
#include "recorded.h"

namespace hotloop {
namespace {

using testing::Json;

// Largest error over the recorded times and components, relative to max(1, |y|).
double global_error(const std::vector<Array>& got, const Json& wanted) {
  double worst = 0;
  std::int64_t at = 0;
  for (const Json& row : wanted)
    for (const Json& value : row) {
      const double y = value.get<double>();
      worst = std::max(worst, std::abs(got[0].at(at++) - y) / std::max(1.0, std::abs(y)));
    }
  return worst;
}

class Detest : public ::testing::TestWithParam<std::string> {};

TEST_P(Detest, GlobalErrorFollowsTheTolerance) {
  const ode::Solver solver = ode::make_solver(GetParam());
  const bool high_order = solver.rule().order() >= 4;
  const Json& recorded = testing::recorded("scipy_ode").at("detest");
  ASSERT_EQ(recorded.size(), 25);
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const Json& json = recorded.at(i);
    const testing::Detest& problem = testing::detest_problems().at(i);
    ASSERT_EQ(json.at("problem").get<std::string>(), problem.name);
    if (solver.rule().order() < 3 && problem.name > "B") continue;  // class A alone: they take 10,000 steps for 1e-6
    const auto y0 = json.at("y0").get<std::vector<double>>(), ts = json.at("ts").get<std::vector<double>>();
    // The tolerance is an argument: one executable for all.
    const Jit solve = jit([&](std::span<const Value> in) {
      ode::Options options;
      // Steps end at the times that are compared: this is about solvers, not about what they have between steps.
      options.controller = ode::Clip(ode::PID(in[1], in[1]), ts);
      options.saveat = ode::SaveAt::times(ts);
      options.max_steps = 5'000'000;
      const ode::Solution s = ode::solve(problem.field, solver, 0, 20, Tree<Value>(in[0]), options);
      return std::vector<Value>{s.ys.leaf(), s.result, s.stats.num_steps};
    });
    for (const double tolerance : {1e-3, 1e-6, 1e-9}) {
      // Below order 4, 1e-9 takes hundreds of thousands of steps, whose rounding says nothing about the solver.
      if (tolerance < 1e-6 && !high_order) continue;
      const auto got = solve({testing::vector_of(y0), Array::scalar(tolerance)});
      const double error = global_error(got, json.at("ys"));
      EXPECT_EQ(got[1].at(0), 0) << problem.name;
      EXPECT_LT(error, problem.amplification * tolerance) << problem.name << ", " << got[2].at(0) << " steps";
    }
  }
}

std::vector<std::string> explicit_solvers() {
  std::vector<std::string> names;
  for (const auto& def : ode::all_solvers()) {
    const ode::Solver solver = ode::make_solver(def.name);
    if (!solver.rule().is_implicit() && solver.rule().error_order() > 0) names.push_back(def.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Explicit, Detest, ::testing::ValuesIn(explicit_solvers()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hotloop
