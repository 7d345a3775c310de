// Derivatives of whole models in every parameter: discrete adjoint = forward sensitivity = difference, in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hotloop/jacobian.h"
#include "hotloop/jit.h"
#include "hotloop/nn.h"
#include "hotloop/transforms.h"
#include "ode/registry.h"
#include "ode_problems.h"
#include "passes/pipeline.h"

namespace hotloop {
namespace {

using ode::Options;
using ode::SaveAt;
using testing::vector_of;

// A loss of a list of parameters (n), none of them 0, differentiated in each one's logarithm: p dL/dp.
class Sensitivities {
 public:
  Sensitivities(const TracedFunction& loss, std::vector<double> at)
      : at_(std::move(at)),
        value_(jit(loss)),
        gradient_(jit(grad(loss, {0}))),
        forward_(jit(
            [loss](std::span<const Value> in) { return jvp(loss, in.first(1), std::vector<Value>{in[1]}).second; })) {}

  std::size_t size() const { return at_.size(); }
  std::vector<double> reverse() const {
    const Array g = gradient_({vector_of(at_)})[0];
    std::vector<double> result;
    for (std::size_t i = 0; i < size(); ++i) result.push_back(g.at(static_cast<std::int64_t>(i)) * at_[i]);
    return result;
  }
  double forward(std::size_t i) const {
    std::vector<double> tangent(size(), 0);
    tangent[i] = at_[i];
    return forward_({vector_of(at_), vector_of(tangent)})[0].at(0);
  }
  // Of eighth order in the relative step h.
  double difference(std::size_t i, double h) const {
    const double weights[] = {4.0 / 5, -1.0 / 5, 4.0 / 105, -1.0 / 280};
    double total = 0;
    for (int k = 1; k <= 4; ++k)
      for (const double sign : {1.0, -1.0}) {
        std::vector<double> moved = at_;
        moved[i] *= 1 + sign * k * h;
        total += sign * weights[k - 1] / h * value_({vector_of(moved)})[0].at(0);
      }
    return total;
  }

  // All three agree to 1e-9 of the largest; reverse and forward mode, which see the same steps, to 1e-9 each.
  void expect_agreement(double h) const {
    const std::vector<double> got = reverse();
    double largest = 0;
    for (const double g : got) largest = std::max(largest, std::abs(g));
    EXPECT_GT(largest, 0);
    for (std::size_t i = 0; i < size(); ++i) {
      EXPECT_NEAR(got[i], forward(i), 1e-9 * std::abs(got[i]) + 1e-13 * largest) << i;
      EXPECT_NEAR(got[i], difference(i, h), 1e-9 * largest) << i;
    }
  }
  void expect_modes_agree() const {
    const std::vector<double> got = reverse();
    double largest = 0;
    for (const double g : got) largest = std::max(largest, std::abs(g));
    for (std::size_t i = 0; i < size(); ++i)
      EXPECT_NEAR(got[i], forward(i), 1e-9 * std::abs(got[i]) + 1e-11 * largest) << i;
  }

 private:
  std::vector<double> at_;
  Jit value_, gradient_, forward_;
};

// Differences see steps that change with the parameters, derivatives do not: so constant steps where they are compared.
Options constant_steps(Value args, double dt0, std::int64_t max_steps) {
  Options options;
  options.args = Tree<Value>(args);
  options.dt0 = dt0;
  options.controller = ode::ConstantStep();
  options.max_steps = max_steps;
  return options;
}

TEST(OdeSensitivities, LotkaVolterra) {
  const auto loss = [](std::span<const Value> in) {
    const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& p) {
      const Value a = take(y.leaf(), 0, 0), b = take(y.leaf(), 0, 1);
      const auto rate = [&](int i) { return take(p.leaf(), 0, i); };
      const Value parts[] = {rate(0) * a - rate(1) * a * b, a * b - rate(2) * b};
      return Tree<Value>(stack(parts, 0));
    };
    Options options = constant_steps(in[0], 0.05, 210);
    options.saveat = SaveAt::times(std::vector<double>{2.5, 5, 7.5, 10});
    const auto s = ode::solve(field, ode::Tsit5(), 0, 10, Tree<Value>(constant(vector_of({1, 1}))), options);
    return std::vector<Value>{sum(square(s.ys.leaf()))};
  };
  Sensitivities(loss, {1.5, 1.0, 3.0}).expect_agreement(2e-3);
}

// A drug that is swallowed every day and once infused, and what it does: depot, two compartments with linear and saturable elimination, and a
// response whose production it inhibits (Dayneka, Garg, Jusko 1993). Doses are an event that changes the state, the infusion makes the
// field discontinuous.
TEST(OdeSensitivities, DrugWithDosing) {
  const auto loss = [](std::span<const Value> in) {
    const auto p = [&](int i) { return take(in[0], 0, i); };
    const Value dose = p(0) * p(1), ka = p(2), cl = p(3), vc = p(4), q = p(5), vp = p(6), vmax = p(7), km = p(8),
                kin = p(9), kout = p(10), imax = p(11), ic50 = p(12), gamma = p(13);
    const ode::Field field = [&](Value t, const Tree<Value>& y, const Tree<Value>&) {
      const Value central = y["central"], c = central / vc, exchange = q * (c - y["peripheral"] / vp);
      const Value infused =
          select(bit_and(greater_equal(t, like(t, 30)), less(t, like(t, 36))), like(t, 4), like(t, 0));
      const Value strength = pow(c, gamma), inhibited = imax * strength / (pow(ic50, gamma) + strength);
      return Tree<Value>{{"depot", -ka * y["depot"]},
                         {"central", ka * y["depot"] - cl * c - vmax * c / (km + c) - exchange + infused},
                         {"peripheral", exchange},
                         {"response", kin * (1 - inhibited) - kout * y["response"]}};
    };
    ode::Event daily;
    daily.function = [](Value t, const Tree<Value>&, const Tree<Value>&) { return sin(t * (3.14159265358979 / 12)); };
    daily.direction = 1;
    daily.terminal = false;
    daily.change = [&](Value, const Tree<Value>& y, const Tree<Value>&) {
      return Tree<Value>{{"depot", y["depot"] + dose},
                         {"central", y["central"]},
                         {"peripheral", y["peripheral"]},
                         {"response", y["response"]}};
    };
    Options options = constant_steps(in[0], 0.27, 300);
    options.controller = ode::Clip(options.controller, {}, {30, 36});
    options.events = {daily};
    options.saveat = SaveAt::times(std::vector<double>{6, 20, 33, 47, 70});
    const Tree<Value> y0 = {
        {"depot", dose}, {"central", 0.2 * dose}, {"peripheral", 0.0 * dose}, {"response", kin / kout}};
    const auto s = ode::solve(field, ode::Tsit5(), 0, 71, y0, options);
    return std::vector<Value>{sum(square(s.ys["central"])) * 1e-3 + sum(square(s.ys["response"])), s.stats.num_events,
                              s.result};
  };
  const std::vector<double> at = {100, 0.8, 1.2, 5, 20, 3, 40, 8, 2.5, 12, 0.6, 0.9, 1.5, 1.7};
  const auto outcome = jit(loss)({vector_of(at)});
  EXPECT_EQ(outcome[1].at(0), 2);  // doses after the first
  EXPECT_EQ(outcome[2].at(0), 0);
  const auto first = [&](std::span<const Value> in) { return std::vector<Value>{loss(in)[0]}; };
  Sensitivities(first, at).expect_agreement(2e-3);
}

std::vector<double> pollution_rates() {
  const Array rates = testing::pollution_rates();
  std::vector<double> list;
  for (std::int64_t i = 0; i < rates.size(); ++i) list.push_back(rates.at(i));
  return list;
}

// Concentrations at the end relative to typical ones, as a function of the 25 rate constants.
TracedFunction pollution_loss(double t1, const std::function<Options(Value)>& options) {
  return [t1, options](std::span<const Value> in) {
    Array y0 = Array::zeros(DType::F64, {20});
    for (const auto& [i, y] : {std::pair{1, 0.2}, {3, 0.04}, {6, 0.1}, {7, 0.3}, {8, 0.01}, {16, 0.007}}) y0.set(i, y);
    const auto s = ode::solve(testing::pollution, ode::Rodas5P(), 0, t1, Tree<Value>(constant(y0)), options(in[0]));
    const Value typical = constant(vector_of({0.05, 0.1,  1e-9, 1e-3, 1e-7, 1e-7,  0.1,   0.3,  0.01, 1e-8,
                                              1e-8, 1e-3, 1e-4, 1e-5, 1e-3, 1e-18, 0.007, 1e-4, 1e-6, 1e-4}));
    return std::vector<Value>{sum(square(s.y1.leaf() / typical))};
  };
}

TEST(OdeSensitivities, Pollution) {
  const auto loss = pollution_loss(3, [](Value rates) { return constant_steps(rates, 0.1, 40); });
  Sensitivities(loss, pollution_rates()).expect_agreement(4e-3);
}

TEST(OdeSensitivities, PollutionWithAdaptiveSteps) {
  const auto loss = pollution_loss(60, [](Value rates) {
    Options options;
    options.args = Tree<Value>(rates);
    options.controller = ode::PID(1e-6, 1e-12);
    options.dt0 = 1e-4;
    options.max_steps = 500;
    return options;
  });
  Sensitivities(loss, pollution_rates()).expect_modes_agree();
}

TEST(OdeSensitivities, NeuralField) {
  const nn::Sequential model(nn::Linear(2, 8), nn::Activation("tanh"), nn::Linear(8, 2));
  const Tree<Array> params = model.init(3, DType::F64);
  std::vector<double> at;
  params.for_each([&](const std::string&, const Array& leaf) {
    for (std::int64_t i = 0; i < leaf.size(); ++i) at.push_back(leaf.at(i));
  });
  ASSERT_EQ(at.size(), 42);
  const auto loss = [&](std::span<const Value> in) {
    std::vector<Value> leaves;
    std::int64_t next = 0;
    params.for_each([&](const std::string&, const Array& leaf) {
      leaves.push_back(reshape(narrow(in[0], 0, next, leaf.size()), leaf.shape()));
      next += leaf.size();
    });
    const Tree<Value> weights = params.unflatten(leaves);
    const ode::Field field = [&](Value, const Tree<Value>& y, const Tree<Value>& args) {
      const Value x = y.leaf();
      return Tree<Value>(model.apply(args, x * x * x));
    };
    Options options = constant_steps(in[0], 0.05, 40);
    options.args = weights;
    options.saveat = SaveAt::times(std::vector<double>{0.5, 1.0, 1.5});
    const auto s = ode::solve(field, ode::Tsit5(), 0, 1.5, Tree<Value>(constant(vector_of({0.9, -0.4}))), options);
    return std::vector<Value>{sum(square(s.ys.leaf()))};
  };
  Sensitivities(loss, at).expect_agreement(1e-2);
}

// A direction along one number of a matrix is a product of two one-hot rows: no dot of the solve reads a dense unit tangent.
TEST(Sensitivities, UnitTangentsOfMatricesStayFactored) {
  constexpr std::int64_t hidden = 16, state = 3, directions = hidden * state;
  const auto solve = [](std::span<const Value> p) {
    Options options;
    options.controller = ode::PID(1e-4, 1e-4);
    options.args = Tree<Value>{{"w0", p[0]}, {"w1", p[1]}};
    const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& w) {
      return Tree<Value>(matmul(w["w1"], tanh(matmul(w["w0"], y.leaf()))));
    };
    const Value y0 = constant(Array::from(std::vector<double>{0.1, -0.1, 0.2}, {state}));
    return std::vector<Value>{ode::solve(field, ode::Tsit5(), 0, 1, Tree<Value>(y0), options).y1.leaf()};
  };
  Array w0(DType::F64, {hidden, state}), w1(DType::F64, {state, hidden});
  for (std::int64_t i = 0; i < directions; ++i) {
    w0.set(i, 0.5 * std::sin(1.0 + static_cast<double>(i)));
    w1.set(i, 0.5 * std::cos(2.0 * static_cast<double>(i)));
  }
  const auto graph = trace(jacfwd(solve, {0, 1}), std::vector{w0.type(), w1.type()});
  const auto largest_read = [](auto&& self, const Graph& g) -> std::int64_t {
    std::int64_t largest = 0;
    for (const auto& node : g.nodes()) {
      if (node->op->name == "dot")
        for (const Value& v : node->operands) largest = std::max(largest, v.shape().size());
      for (const auto& region : node->regions) largest = std::max(largest, self(self, *region));
    }
    return largest;
  };
  // The largest are the hidden layer's tangents along all directions, of both matrices side by side.
  EXPECT_LT(largest_read(largest_read, *passes::optimize(*graph, {})), directions * directions);
  // And the numbers are those of reverse mode.
  const std::vector<Array> at{w0, w1};
  const auto forward = compile(graph)(at), reverse = jit(jacrev(solve, {0, 1}))(at);
  for (std::size_t k = 0; k < 2; ++k)
    for (std::int64_t i = 0; i < forward[k].size(); ++i) EXPECT_NEAR(forward[k].at(i), reverse[k].at(i), 1e-12) << k;
}

}  // namespace
}  // namespace hotloop
