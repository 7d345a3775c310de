// Adjoints of the equation: within their tolerance of the discrete adjoint, forward mode that is the steps', and what they refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "hotloop/nn.h"
#include "hotloop/transforms.h"
#include "ode/registry.h"
#include "ode_problems.h"

namespace hotloop {
namespace {

using ode::Options;
using ode::SaveAt;
using testing::vector_of;

struct Named {
  std::string name;
  std::function<ode::Adjoint(const ode::AdjointTolerance&)> make;
};
void PrintTo(const Named& n, std::ostream* out) { *out << n.name; }

class ContinuousAdjoint : public ::testing::TestWithParam<Named> {};

// A loss of a pendulum with friction at some times and at the end, as a function of its rates and where it starts. The last rate is a value
// of the enclosing trace that the field uses without being given it.
TracedFunction pendulum(const ode::Adjoint& adjoint, double t0 = 0, double t1 = 3) {
  return [adjoint, t0, t1](std::span<const Value> in) {
    const Value friction = take(in[0], 0, 2);
    const ode::Field field = [&](Value t, const Tree<Value>& y, const Tree<Value>& rates) {
      const Value torque = 0.3 * cos(take(rates.leaf(), 0, 1) * t);
      return Tree<Value>{{"angle", y["speed"]},
                         {"speed", torque - take(rates.leaf(), 0, 0) * sin(y["angle"]) - friction * y["speed"]}};
    };
    Options options;
    options.args = Tree<Value>(in[0]);
    options.controller = ode::PID(1e-10, 1e-10);
    options.adjoint = adjoint;
    options.max_steps = 400;
    options.saveat = SaveAt::times({t0 + 0.3 * (t1 - t0), t0 + 0.7 * (t1 - t0)});
    options.saveat.t0 = options.saveat.t1 = true;
    const Tree<Value> y0 = {{"angle", take(in[1], 0, 0)}, {"speed", take(in[1], 0, 1)}};
    const auto s = ode::solve(field, ode::Tsit5(), t0, t1, y0, options);
    return std::vector<Value>{sum(square(s.ys["angle"])) + sum(exp(s.ys["speed"])) + s.y1["angle"], s.ts,
                              s.stats.num_accepted};
  };
}
std::vector<Array> point() { return {vector_of({2.0, 1.3, 0.2}), vector_of({0.8, -0.1})}; }

TEST_P(ContinuousAdjoint, IsTheDiscreteOneToItsTolerance) {
  const ode::AdjointTolerance fine{.rtol = 1e-9, .atol = 1e-11, .max_steps = 300};
  for (const auto& [t0, t1] : {std::pair{0.0, 3.0}, {2.0, 0.5}}) {
    const auto wanted = jit(value_and_grad(pendulum(ode::Discrete(), t0, t1), {0, 1}))(point());
    const auto got = jit(value_and_grad(pendulum(GetParam().make(fine), t0, t1), {0, 1}))(point());
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t k = 0; k < 3; ++k)  // the solve is the same one
      for (std::int64_t i = 0; i < got[k].size(); ++i) EXPECT_NEAR(got[k].at(i), wanted[k].at(i), 1e-13) << k;
    for (std::size_t k = 3; k < 5; ++k)
      for (std::int64_t i = 0; i < got[k].size(); ++i)
        EXPECT_NEAR(got[k].at(i), wanted[k].at(i), 2e-7) << GetParam().name << " from " << t0 << ", " << k << " " << i;
  }
}

// Cubic interpolants of solvers of high order would cost digits that the tolerance promises.
TEST(AdjointsAlongAnInterpolant, RefuseOneThatIsTooCoarse) {
  const auto gradient = [](const ode::Solver& solver, const ode::Adjoint& adjoint) {
    return jit(grad(
        [&](std::span<const Value> in) {
          Options options;
          options.args = Tree<Value>(in[0]);
          options.controller = ode::PID(1e-10, 1e-12);
          options.adjoint = adjoint;
          const auto f = [](Value, const Tree<Value>& y, const Tree<Value>& k) {
            return Tree<Value>(k.leaf() * y.leaf() * (1.0 - y.leaf()));
          };
          return std::vector{ode::solve(f, solver, 0, 3, Tree<Value>(like(in[0], 0.1)), options).y1.leaf()};
        },
        {0}))({Array::scalar(1.3)})[0]
        .at(0);
  };
  const ode::AdjointTolerance fine{.rtol = 1e-9, .atol = 1e-11};
  const double wanted = gradient(ode::Dopri8(), ode::Discrete());
  for (const ode::Adjoint& adjoint : {ode::Adjoint(ode::Gauss(fine)), ode::Adjoint(ode::Interpolating(fine))}) {
    for (const ode::Solver& solver : {ode::Solver(ode::Vern7()), ode::Solver(ode::Kvaerno5())})
      EXPECT_THROW(gradient(solver, adjoint), UserError) << solver.rule().name();
    for (const ode::Solver& solver :
         {ode::Solver(ode::Tsit5()), ode::Solver(ode::Dopri8()), ode::Solver(ode::Rodas5P())})
      EXPECT_NEAR(gradient(solver, adjoint), wanted, 1e-7) << solver.rule().name();
  }
}

TEST_P(ContinuousAdjoint, FollowsItsTolerance) {
  const auto wanted = jit(grad(pendulum(ode::Discrete()), {0}))(point());
  double errors[2];
  for (int k = 0; k < 2; ++k) {
    const double tolerance = k == 0 ? 1e-2 : 1e-6;
    const auto got =
        jit(grad(pendulum(GetParam().make({.rtol = tolerance, .atol = tolerance, .max_steps = 300})), {0}))(point());
    errors[k] = 0;
    for (std::int64_t i = 0; i < 3; ++i) errors[k] = std::max(errors[k], std::abs(got[0].at(i) - wanted[0].at(i)));
  }
  EXPECT_GT(errors[0], 1e-7);
  EXPECT_LT(errors[1], 0.1 * errors[0]);
}

TEST_P(ContinuousAdjoint, ForwardModeIsThatOfTheSteps) {
  const auto along = [](const ode::Adjoint& adjoint) {
    return jit([&](std::span<const Value> in) {
      const std::vector<Value> tangents = {constant(vector_of({0.3, -0.5, 1.0})), constant(vector_of({0.2, 0.7}))};
      return std::vector<Value>{jvp(pendulum(adjoint), in, tangents).second[0]};
    })(point());
  };
  EXPECT_NEAR(along(GetParam().make({}))[0].at(0), along(ode::Discrete())[0].at(0), 1e-12);
}

TEST_P(ContinuousAdjoint, BatchesAndTrainsALayer) {
  const auto gradient = [](const ode::Adjoint& adjoint) {
    Options options;
    options.controller = ode::PID(1e-8, 1e-8);
    options.max_steps = 200;
    options.adjoint = adjoint;
    const nn::Sequential field(nn::Linear(2, 6), nn::Activation("tanh"), nn::Linear(6, 2));
    const nn::NeuralODE layer(field, 1.5, 3, ode::Tsit5(), options);
    const Tree<Array> params = layer.init(2, DType::F64);
    std::vector<Array> arguments = params.flatten();
    arguments.push_back(Array::from(std::vector<double>{0.5, -0.2, 1.5, 0.3, -0.7, 1.0}, {3, 2}));
    return jit(grad(
        [&](std::span<const Value> in) {
          return std::vector<Value>{sum(square(layer.apply(params.unflatten(in.first(4)), in[4])))};
        },
        {0, 1, 2, 3, 4}))(arguments);
  };
  const auto wanted = gradient(ode::Discrete()),
             got = gradient(GetParam().make({.rtol = 1e-8, .atol = 1e-8, .max_steps = 200}));
  for (std::size_t k = 0; k < wanted.size(); ++k)
    for (std::int64_t i = 0; i < wanted[k].size(); ++i)
      EXPECT_NEAR(got[k].at(i), wanted[k].at(i), 2e-6) << k << " " << i;
}

TEST_P(ContinuousAdjoint, RefusesWhatItCannotDo) {
  const auto expect_error = [&](const std::string& part, const std::function<void(Options&)>& change, bool known = true,
                                const ode::Solver& solver = ode::Tsit5()) {
    Options options;
    options.adjoint = GetParam().make({});
    change(options);
    try {
      (void)trace(
          [&](std::span<const Value> in) {
            const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>&) {
              return Tree<Value>(-y.leaf());
            };
            const ode::Scalar end = known ? ode::Scalar(1) : ode::Scalar(in[0]);
            return std::vector<Value>{ode::solve(field, solver, 0, end, Tree<Value>(in[0]), options).y1.leaf()};
          },
          std::vector<ValueType>{{DType::F64, {}}});
      ADD_FAILURE() << "no error: " << part;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect_error("cannot pass events", [](Options& o) {
    o.events = {{.function = [](Value, const Tree<Value>& y, const Tree<Value>&) { return y.leaf(); }}};
  });
  expect_error("needs output at known times", [](Options& o) { o.saveat = SaveAt::every_step(); });
  expect_error(
      "needs t0 and t1 as numbers", [](Options&) {}, false);
  expect_error(
      "a solver with an error estimate",
      [](Options& o) {
        o.controller = ode::ConstantStep();
        o.dt0 = 0.1;
      },
      true, ode::RK4());
}

INSTANTIATE_TEST_SUITE_P(
    All, ContinuousAdjoint,
    ::testing::Values(Named{"backsolve", [](const auto& t) { return ode::Adjoint(ode::Backsolve(t)); }},
                      Named{"interpolating", [](const auto& t) { return ode::Adjoint(ode::Interpolating(t)); }},
                      Named{"gauss", [](const auto& t) { return ode::Adjoint(ode::Gauss(t)); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hotloop
