// What ode::solve gives back: rows, result codes, and what it says of misuse.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hotloop/jit.h"
#include "ir/op_def.h"
#include "ode/registry.h"
#include "ode_problems.h"
#include "op_checks.h"

namespace hotloop {
namespace {

using ode::Options;
using ode::SaveAt;
using testing::problem;
using testing::Problem;
using testing::vector_of;

TEST(OdeSolve, SavesWhereItIsAsked) {
  const Problem& p = problem("lotka_volterra");
  const auto fn = [&](std::span<const Value> in) {
    Options options;
    options.controller = ode::PID(1e-6, 1e-8);
    options.saveat = SaveAt::times(std::vector<double>{0.0, 1.0, 2.5});
    options.saveat.t0 = options.saveat.t1 = options.saveat.steps = options.saveat.dense = true;
    options.max_steps = 300;
    const auto s = ode::solve(p.field, ode::Tsit5(), 0, 4, Tree<Value>(in[0]), options);
    return std::vector<Value>{s.ts,
                              s.ys.leaf(),
                              s.y1.leaf(),
                              s.stats.num_accepted,
                              s.evaluate(constant(2.5, DType::F64)).leaf(),
                              s.evaluate(constant(4, DType::F64)).leaf(),
                              s.evaluate(constant(Array::from(std::vector<double>{2.5, 4}, {1, 2}))).leaf()};
  };
  const auto graph = trace(fn, std::vector{ValueType{DType::F64, {2}}}, "saves");
  const std::vector<Array> y0 = {vector_of({1, 1})};
  const auto got = compile(graph)(y0), wanted = ir::evaluate(*graph, y0);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(ir::close(got[i], wanted[i], 1e-11)) << i;
  const auto steps = static_cast<std::int64_t>(got[3].at(0));
  ASSERT_EQ(got[0].shape(), (Shape{1 + 3 + 300 + 1}));
  const double times[] = {0, 0, 1, 2.5};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got[0].at(i), times[i]);
  EXPECT_EQ(got[0].at(4 + steps - 1), 4);  // the last step ends at t1 exactly
  EXPECT_TRUE(std::isinf(got[0].at(4 + steps)));
  EXPECT_TRUE(std::isinf(got[1].at(2 * (4 + steps))));
  for (int c = 0; c < 2; ++c) {
    EXPECT_EQ(got[1].at(c), 1);
    EXPECT_NEAR(got[1].at(2 + c), 1, 1e-15);
    EXPECT_EQ(got[1].at(2 * 304 + c), got[2].at(c));
    EXPECT_EQ(got[1].at(2 * (4 + steps - 1) + c), got[2].at(c));
    EXPECT_NEAR(got[4].at(c), got[1].at(6 + c), 1e-14);  // dense output is what was saved
    EXPECT_NEAR(got[5].at(c), got[2].at(c), 1e-12);
    EXPECT_EQ(got[6].at(c), got[4].at(c));
    EXPECT_EQ(got[6].at(2 + c), got[5].at(c));
  }
  EXPECT_EQ(got[6].shape(), (Shape{1, 2, 2}));
}

TEST(OdeSolve, JumpsAreSteppedOnto) {
  // A field that is discontinuous at 1: y' = 1 before, -2 after.
  const ode::Field field = [](Value t, const Tree<Value>& y, const Tree<Value>&) {
    return Tree<Value>(select(less(t, like(t, 1)), like(y.leaf(), 1), like(y.leaf(), -2)));
  };
  const auto fn = [&](std::span<const Value> in) {
    std::vector<Value> out;
    for (const bool clipped : {true, false}) {
      Options options;
      options.controller = ode::PID(1e-8, 1e-8);
      if (clipped) options.controller = ode::Clip(options.controller, {}, {1.0});
      options.dt0 = 0.3;
      const auto s = ode::solve(field, ode::Tsit5(), 0, 2, Tree<Value>(in[0]), options);
      out.push_back(s.y1.leaf());
      out.push_back(s.stats.num_rejected);
    }
    return out;
  };
  const auto got = jit(fn)({Array::scalar(0.0)});
  EXPECT_NEAR(got[0].at(0), -1, 1e-14);
  EXPECT_EQ(got[1].at(0), 0);
  EXPECT_GT(got[3].at(0), 3);
}

// ---- what can happen while the program runs ---------------------------------------------------------------------------

std::vector<Array> run_to(const ode::Field& field, double t1, const Options& options, double y0 = 1) {
  return jit([&](std::span<const Value> in) {
    const auto s = ode::solve(field, ode::Tsit5(), 0, t1, Tree<Value>(in[0]), options);
    return std::vector<Value>{s.result, s.t1, s.y1.leaf(), s.stats.num_steps, s.ys.leaf()};
  })({Array::scalar(y0)});
}

TEST(OdeResult, TooManySteps) {
  Options options;
  options.max_steps = 5;
  options.saveat = SaveAt::times(std::vector<double>{0.5, 50});
  options.dt0 = 0.5;
  const auto got =
      run_to([](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(-y.leaf()); }, 50, options);
  EXPECT_EQ(got[0].at(0), static_cast<int>(ode::Result::MaxSteps));
  EXPECT_EQ(got[3].at(0), 5);
  EXPECT_NEAR(got[4].at(0), std::exp(-0.5), 1e-3);  // what was reached is kept
  EXPECT_TRUE(std::isinf(got[4].at(1)));
  EXPECT_THROW(ode::check(got[0]), UserError);
}

TEST(OdeResult, BlowUp) {
  Options options;
  const auto got =
      run_to([](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(square(y.leaf())); }, 2, options);
  EXPECT_EQ(got[0].at(0), static_cast<int>(ode::Result::StepTooSmall));
  EXPECT_NEAR(got[1].at(0), 1, 1e-3);
}

TEST(OdeResult, UndefinedField) {
  Options options;
  const auto got = run_to(
      [](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(-1.0 / sqrt(y.leaf())); }, 2, options);
  EXPECT_NE(got[0].at(0), 0);
  options.controller = ode::ConstantStep();
  options.dt0 = 0.1;
  const auto constant = run_to(
      [](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(-1.0 / sqrt(y.leaf())); }, 2, options);
  EXPECT_EQ(constant[0].at(0), static_cast<int>(ode::Result::NonFinite));
}

// The first step is found by a trial that may leave what the field is defined on.
TEST(OdeResult, FieldUndefinedBeyondTheFirstStep) {
  constexpr double border = 0.9999999, t1 = 2e-4;
  const auto got = run_to(
      [](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(-sqrt(y.leaf() - border)); }, t1, {});
  EXPECT_EQ(got[0].at(0), static_cast<int>(ode::Result::Success));
  EXPECT_NEAR(got[2].at(0), border + std::pow(std::sqrt(1 - border) - t1 / 2, 2), 1e-9);
  const auto nowhere =
      run_to([](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(log(y.leaf() - 2.0)); }, 2, {});
  EXPECT_EQ(nowhere[0].at(0), static_cast<int>(ode::Result::NonFinite));
}

// ---- misuse -----------------------------------------------------------------------------------------------------------

void expect_error(const std::string& part, const ode::Field& field, double t0, double t1, const Options& options,
                  const ode::Solver& solver = ode::Tsit5()) {
  try {
    (void)trace(
        [&](std::span<const Value> in) {
          return std::vector<Value>{ode::solve(field, solver, t0, t1, Tree<Value>(in[0]), options).y1.leaf()};
        },
        std::vector<ValueType>{{DType::F64, {2}}});
    ADD_FAILURE() << "no error: " << part;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(OdeErrors, SayWhatIsWrong) {
  const ode::Field decay = problem("decay").field;
  Options options;
  options.saveat = SaveAt::times(std::vector<double>{0.5, 0.2});
  expect_error("ts must be sorted", decay, 0, 1, options);
  options.saveat = SaveAt::times(std::vector<double>{0.5, 2});
  expect_error("ts must lie between t0 and t1", decay, 0, 1, options);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  options.saveat = SaveAt::times(std::vector<double>{0.5, nan});
  expect_error("ts must be numbers", decay, 0, 1, options);
  options = {};
  expect_error("t0 must be a number", decay, nan, 1, options);
  expect_error("t1 must be a number", decay, 0, nan, options);
  expect_error("needs a solver with an error estimate", decay, 0, 1, options, ode::RK4());
  options.controller = ode::ConstantStep();
  expect_error("constant steps need dt0", decay, 0, 1, options);
  options.dt0 = -0.1;
  expect_error("dt0 must be positive", decay, 0, 1, options);
  options = {};
  expect_error(
      "the field must give the state's shapes",
      [](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(sum(y.leaf())); }, 0, 1, options);
  expect_error(
      "the field must give a tree like the state",
      [](Value, const Tree<Value>& y, const Tree<Value>&) {
        return Tree<Value>{{"y", y}};
      },
      0, 1, options);
  expect_error("position and velocity", decay, 0, 1, {.dt0 = 0.1, .controller = ode::ConstantStep()}, ode::Leapfrog());
  EXPECT_THROW((void)ode::make_solver("tsit"), UserError);
}

}  // namespace
}  // namespace hotloop
