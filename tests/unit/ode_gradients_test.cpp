// Derivatives of ode::solve: each adjoint against forward mode and differences, their memory, second order.
#include <gtest/gtest.h>

#include <cmath>

#include "hotloop/jit.h"
#include "hotloop/transforms.h"
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

// sum of squares of Lotka-Volterra at three times, as a function of the four rates and of y0. Constant steps: adaptive ones
// change with the parameters in a finite difference, but are constants of the derivative.
TracedFunction lotka_volterra_loss(const ode::Adjoint& adjoint, bool adaptive = false) {
  return [adjoint, adaptive](std::span<const Value> in) {
    const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& p) {
      const Value a = take(y.leaf(), 0, 0), b = take(y.leaf(), 0, 1);
      const auto rate = [&](int i) { return take(p.leaf(), 0, i); };
      const Value parts[] = {rate(0) * a - rate(1) * a * b, rate(2) * a * b - rate(3) * b};
      return Tree<Value>(stack(parts, 0));
    };
    Options options;
    options.args = Tree<Value>(in[0]);
    options.saveat = SaveAt::times(std::vector<double>{0.7, 1.9, 3.0});
    options.dt0 = 0.05;
    options.adjoint = adjoint;
    options.max_steps = 200;
    if (!adaptive) options.controller = ode::ConstantStep();
    const auto s = ode::solve(field, ode::Tsit5(), 0, 3, Tree<Value>(in[1]), options);
    return std::vector<Value>{sum(square(s.ys.leaf())) + sum(s.y1.leaf())};
  };
}

const std::vector<ValueType> loss_types = {{DType::F64, {4}}, {DType::F64, {2}}};
std::vector<Array> loss_point() { return {vector_of({1.5, 1.0, 0.9, 3.0}), vector_of({1.0, 1.2})}; }

TEST(OdeGradient, DiscreteAdjointIsForwardSensitivityAndFiniteDifference) {
  for (const ode::Adjoint& adjoint :
       {ode::Adjoint(ode::Discrete()), ode::Adjoint(ode::FullSave()), ode::Adjoint(ode::Checkpointed())}) {
    const auto loss = lotka_volterra_loss(adjoint);
    const auto graph = trace(grad(loss, {0, 1}), loss_types, "grad");
    const auto got = compile(graph)(loss_point());
    const auto oracle = ir::evaluate(*graph, loss_point());
    const Jit value = jit(loss);
    for (int which = 0; which < 2; ++which) {
      EXPECT_TRUE(ir::close(got[static_cast<std::size_t>(which)], oracle[static_cast<std::size_t>(which)], 1e-12));
      const Array& g = got[static_cast<std::size_t>(which)];
      for (std::int64_t i = 0; i < g.size(); ++i) {
        const auto forward = jit([&](std::span<const Value> in) {
          std::vector<Value> tangents(2);
          Array e = Array::zeros(DType::F64, g.shape());
          e.set(i, 1);
          tangents[static_cast<std::size_t>(which)] = constant(e);
          return jvp(loss, in, tangents).second;
        })(loss_point());
        EXPECT_NEAR(g.at(i) / forward[0].at(0), 1, 1e-11);
        double difference = 0;  // fourth order in h
        for (const auto& [step, weight] : {std::pair{1e-3, 8.0 / 12}, {2e-3, -1.0 / 12}})
          for (const double sign : {1.0, -1.0}) {
            auto at = loss_point();
            at[static_cast<std::size_t>(which)].set(i, at[static_cast<std::size_t>(which)].at(i) + sign * step);
            difference += sign * weight / 1e-3 * value(at)[0].at(0);
          }
        EXPECT_NEAR(g.at(i) / difference, 1, 1e-9);
      }
    }
  }
}

TEST(OdeGradient, AdaptiveStepsOnEveryBackend) {
  const auto loss = lotka_volterra_loss(ode::Discrete(), true);
  const auto graph = trace(grad(loss, {0, 1}), loss_types, "grad");
  const auto oracle = ir::evaluate(*graph, loss_point());
  for (const char* backend : {"llvm", "c"}) {
    CompileOptions options;
    options.backend = backend;
    const auto got = compile(graph, options)(loss_point());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(ir::close(got[i], oracle[i], 1e-11)) << backend;
  }
}

TEST(OdeGradient, CheckpointsBoundMemory) {
  // The arena of a gradient with room for 10,000 steps of a state of 50.
  const auto bytes_with = [](const ode::Adjoint& adjoint) {
    const auto loss = [&](std::span<const Value> in) {
      const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>&) {
        return Tree<Value>(-sin(y.leaf()));
      };
      Options options;
      options.adjoint = adjoint;
      options.max_steps = 10000;
      return std::vector<Value>{sum(ode::solve(field, ode::Tsit5(), 0, 1, Tree<Value>(in[0]), options).y1.leaf())};
    };
    const Executable run = compile(trace(grad(loss, {0}), std::vector<ValueType>{{DType::F64, {50}}}));
    KernelHistory::start();
    (void)run(std::vector<Array>{Array::full(DType::F64, {50}, 0.5)});
    return KernelHistory::stop().at(0).shared_bytes;
  };
  EXPECT_GT(bytes_with(ode::Discrete()), 10000 * 50 * 8);
  EXPECT_LT(bytes_with(ode::Checkpointed()), 10000 * 50 * 8 / 10);
}

// Backward evaluates the field again only where what it needs of the stages is large.
TEST(OdeGradient, DiscreteKeepsTheStagesWhereTheyAreSmall) {
  const auto dots_with = [](const ode::Adjoint& adjoint, std::int64_t max_steps) {
    const auto loss = [&](std::span<const Value> in) {
      const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& w) {
        return Tree<Value>(tanh(matmul(w.leaf(), y.leaf())));
      };
      Options options;
      options.adjoint = adjoint;
      options.max_steps = max_steps;
      options.args = Tree<Value>(in[0]);
      return std::vector<Value>{sum(ode::solve(field, ode::Tsit5(), 0, 1, Tree<Value>(in[1]), options).y1.leaf())};
    };
    const std::vector<ValueType> types{{DType::F64, {50, 50}}, {DType::F64, {50}}};
    const Executable run = compile(trace(grad(loss, {0}), types));
    KernelHistory::start();
    (void)run(std::vector<Array>{Array::full(DType::F64, {50, 50}, 0.01), Array::full(DType::F64, {50}, 0.5)});
    const KernelRecord record = KernelHistory::stop().at(0);
    return record.num_dots + record.num_maps;
  };
  EXPECT_EQ(dots_with(ode::Discrete(), 100), dots_with(ode::FullSave(), 100));
  EXPECT_GT(dots_with(ode::Discrete(), 100000), dots_with(ode::FullSave(), 100));
}

TEST(OdeGradient, SecondOrder) {
  const auto loss = lotka_volterra_loss(ode::Discrete());
  const auto hvp = [&](std::span<const Value> in) {
    const std::vector<Value> tangents = {constant(vector_of({0.3, -0.2, 0.1, 0.4})), Value{}};
    return jvp(grad(loss, {0}), in, tangents).second;
  };
  const auto got = jit(hvp)(loss_point());
  const Jit gradient = jit(grad(loss, {0}));
  const double direction[] = {0.3, -0.2, 0.1, 0.4};
  for (std::int64_t i = 0; i < 4; ++i) {
    double difference = 0;
    for (const auto& [step, weight] : {std::pair{1e-3, 8.0 / 12}, {2e-3, -1.0 / 12}})
      for (const double sign : {1.0, -1.0}) {
        auto at = loss_point();
        for (std::int64_t k = 0; k < 4; ++k) at[0].set(k, at[0].at(k) + sign * step * direction[k]);
        difference += sign * weight / 1e-3 * gradient(at)[0].at(i);
      }
    EXPECT_NEAR(got[0].at(i) / difference, 1, 1e-8);
  }
}

TEST(OdeGradient, OfTheTimes) {
  // d y(t1) / d t1 = f(t1, y1), and - f for t0 (an autonomous field).
  const auto fn = [](std::span<const Value> in) {
    Options options;
    options.controller = ode::PID(1e-8, 1e-10);
    return std::vector<Value>{
        ode::solve(problem("decay").field, ode::Tsit5(), in[0], in[1], Tree<Value>(in[2]), options).y1.leaf()};
  };
  const auto got = jit(grad(fn, {0, 1}))({Array::scalar(0.5), Array::scalar(1.5), Array::scalar(2.0)});
  const double y1 = 2 * std::exp(-1.0);
  EXPECT_NEAR(got[0].at(0), y1, 1e-6);
  EXPECT_NEAR(got[1].at(0), -y1, 1e-6);
  const auto back =
      jit(fn)({Array::scalar(1.5), Array::scalar(0.5), Array::scalar(y1)});  // direction found at run time
  EXPECT_NEAR(back[0].at(0), 2, 1e-6);
}

TEST(OdeGradient, ThroughImplicitSolvers) {
  // d y(1) / d (rate, y0) of y' = -rate (y - cos t), stiff at rate = 50, against a difference.
  for (const char* solver : {"implicit_euler", "rosenbrock23", "rodas5p", "kvaerno3", "kvaerno5"}) {
    const auto fn = [&](std::span<const Value> in) {
      const ode::Field field = [](Value t, const Tree<Value>& y, const Tree<Value>& rate) {
        const Value a = take(y.leaf(), 0, 0), b = take(y.leaf(), 0, 1);
        const Value parts[] = {-rate.leaf() * (a - cos(t)) - a * a * b, a - 0.3 * b * b};
        return Tree<Value>(stack(parts, 0));
      };
      Options options;
      options.args = Tree<Value>(in[0]);
      options.dt0 = 0.05;
      options.controller = ode::ConstantStep();
      options.max_steps = 30;
      const auto s = ode::solve(field, ode::make_solver(solver), 0, 1, Tree<Value>(in[1]), options);
      return std::vector<Value>{sum(s.y1.leaf() * s.y1.leaf())};
    };
    const std::vector<Array> at = {Array::scalar(50.0), vector_of({0.2, 0.6})};
    const auto got = jit(grad(fn, {0, 1}))(at);
    const Jit value = jit(fn);
    const auto difference = [&](std::size_t which, std::int64_t i) {
      double total = 0;
      const double h = which == 0 ? 0.05 : 1e-3;
      for (const auto& [step, weight] : {std::pair{h, 8.0 / 12}, {2 * h, -1.0 / 12}})
        for (const double sign : {1.0, -1.0}) {
          std::vector<Array> moved = {at[0].clone(), at[1].clone()};
          moved[which].set(i, at[which].at(i) + sign * step);
          total += sign * weight / h * value(moved)[0].at(0);
        }
      return total;
    };
    EXPECT_NEAR(got[0].at(0) / difference(0, 0), 1, 1e-5) << solver;
    for (std::int64_t i = 0; i < 2; ++i)
      EXPECT_NEAR(got[1].at(i), difference(1, i), 1e-6 * std::abs(difference(1, 1))) << solver;
  }
}

// What they solve in each step depends on the parameter, so the transpose of a step must know how.
TEST(OdeGradient, SecondOrderThroughImplicitSolvers) {
  for (const char* solver : {"implicit_euler", "rosenbrock23", "kvaerno3"}) {
    const TracedFunction fn = [&](std::span<const Value> in) {
      const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& rate) {
        return Tree<Value>(-square(rate.leaf() * y.leaf()) - y.leaf());
      };
      Options options;
      options.args = Tree<Value>(in[0]);
      options.dt0 = 0.1;
      options.controller = ode::ConstantStep();
      options.max_steps = 12;
      const auto s = ode::solve(field, ode::make_solver(solver), 0, 1, Tree<Value>(ones_like(in[0])), options);
      return std::vector<Value>{s.y1.leaf()};
    };
    const auto slope = [](const TracedFunction& f, bool reverse) -> TracedFunction {
      if (reverse) return grad(f, {0});
      return [f](std::span<const Value> in) { return jvp(f, in, std::vector<Value>{ones_like(in[0])}).second; };
    };
    const Jit first = jit(slope(fn, false));
    double second = 0;
    for (const auto& [step, weight] : {std::pair{1e-3, 8.0 / 12}, {2e-3, -1.0 / 12}})
      for (const double sign : {1.0, -1.0})
        second += sign * weight / 1e-3 * first({Array::scalar(1 + sign * step)})[0].at(0);
    for (const bool inner : {false, true})
      for (const bool outer : {false, true})
        EXPECT_NEAR(jit(slope(slope(fn, inner), outer))({Array::scalar(1.0)})[0].at(0), second, 1e-7)
            << solver << (inner ? ", reverse" : ", forward") << (outer ? " and reverse" : " and forward");
  }
}

TEST(OdeGradient, OfEachTrajectoryOfABatch) {
  const auto loss = lotka_volterra_loss(ode::Discrete(), true);
  const auto per_sample = vmap(grad(loss, {0, 1}), {0, 0});
  std::vector<Array> inputs = {Array(DType::F64, {9, 4}), Array(DType::F64, {9, 2})};
  for (std::int64_t i = 0; i < 9; ++i) {
    for (std::int64_t k = 0; k < 4; ++k)
      inputs[0].set(4 * i + k, loss_point()[0].at(k) * (1 + 0.1 * static_cast<double>(i % 4)));
    for (std::int64_t k = 0; k < 2; ++k) inputs[1].set(2 * i + k, 1 + 0.2 * static_cast<double>(i));
  }
  const auto graph = trace(per_sample, ir::types_of(inputs), "per_sample");
  const auto got = compile(graph)(inputs), oracle = ir::evaluate(*graph, inputs);
  const Jit alone = jit(grad(loss, {0, 1}));
  for (std::size_t k = 0; k < 2; ++k) {
    EXPECT_TRUE(ir::close(got[k], oracle[k], 1e-10));
    const std::int64_t width = got[k].shape()[1];
    for (std::int64_t i = 0; i < 9; ++i) {
      Array p(DType::F64, {4}), y(DType::F64, {2});
      for (std::int64_t c = 0; c < 4; ++c) p.set(c, inputs[0].at(4 * i + c));
      for (std::int64_t c = 0; c < 2; ++c) y.set(c, inputs[1].at(2 * i + c));
      const auto one = alone({p, y});
      for (std::int64_t c = 0; c < width; ++c) EXPECT_NEAR(got[k].at(width * i + c) / one[k].at(c), 1, 1e-9);
    }
  }
}

}  // namespace
}  // namespace hotloop
