#include "hotloop/optim.h"

#include "arrays.h"
#include "nn_testing.h"
#include "optim/registry.h"
#include "registry_samples.h"

namespace hotloop::testing {
namespace {

using optim::Optimizer;

using Gradient = std::function<Tree<Value>(const Tree<Value>& params)>;

// Parameters and state after `steps` steps.
std::pair<Tree<Array>, Tree<Array>> run(const Optimizer& optimizer, Tree<Array> params, const Gradient& gradient,
                                        int steps) {
  Tree<Array> state = optimizer.init(params);
  const std::size_t p = params.num_leaves();
  for (int step = 0; step < steps; ++step) {
    std::vector<Array> arrays = params.flatten();
    for (const Array& a : state.flatten()) arrays.push_back(a);
    const std::vector<Array> results = run_traced(
        [&](std::span<const Value> in) {
          const Tree<Value> now = params.unflatten(in.first(p));
          const auto [next, next_state] = optimizer.update(gradient(now), state.unflatten(in.subspan(p)), now);
          EXPECT_EQ(next_state.names(), state.names());
          std::vector<Value> out = next.flatten();
          for (Value v : next_state.flatten()) out.push_back(v);
          return out;
        },
        arrays);
    params = params.unflatten(std::span(results).first(p));
    state = state.unflatten(std::span(results).subspan(p));
  }
  return {params, state};
}

// The same with one gradient at every step.
std::pair<Tree<Array>, Tree<Array>> run(const Optimizer& optimizer, const Tree<Array>& params, const Tree<Array>& grads,
                                        int steps) {
  const auto constants = [&](const Tree<Value>&) { return grads.map([](const Array& g) { return constant(g); }); };
  return run(optimizer, params, Gradient(constants), steps);
}

Tree<Array> one(double value, DType dtype = DType::F64) { return {{"w", Array::full(dtype, {1}, value)}}; }

TEST(Optimizers, SgdByHand) {
  EXPECT_DOUBLE_EQ(run(optim::SGD(0.1), one(1), one(2), 3).first["w"].at(0), 1 - 0.1 * 2 * 3);
  // Velocities 2, 3, 3.5.
  EXPECT_DOUBLE_EQ(run(optim::SGD(0.1, 0.5), one(1), one(2), 3).first["w"].at(0), 1 - 0.1 * 8.5);
  EXPECT_NEAR(run(optim::SGD(0.1, 0.5, true), one(1), one(2), 3).first["w"].at(0), 1 - 0.1 * (6 + 0.5 * 8.5), 1e-15);
}

TEST(Optimizers, AdamsFirstStepIsTheLearningRateWhateverTheGradient) {
  for (DType dtype : {DType::F32, DType::F64})
    for (double g : {1e-3, 1.0, 1e3}) {
      const auto [params, state] = run(optim::Adam(1e-3), one(0, dtype), one(g, dtype), 1);
      EXPECT_NEAR(params["w"].at(0), -1e-3 * g / (g + 1e-8), dtype == DType::F32 ? 3e-10 : 1e-17) << g;
      EXPECT_EQ(state["step"].at(0), 1);
      EXPECT_EQ(state["step"].dtype(), DType::I32);
    }
}

TEST(Optimizers, AdamsTwoEpsilons) {
  // g = 1e-8: PyTorch adds epsilon to |g|, Keras to sqrt(0.001) |g|.
  const double torch = run(optim::Adam(1), one(0), one(1e-8), 1).first["w"].at(0);
  EXPECT_NEAR(torch, -0.5, 1e-12);
  const double keras = run(optim::Adam(1, optim::AdamOptions::keras()), one(0), one(1e-8), 1).first["w"].at(0);
  EXPECT_NEAR(keras, -std::sqrt(0.001) * 1e-8 / (std::sqrt(0.001) * 1e-8 + 1e-7), 1e-12);
}

TEST(Optimizers, EachLeafKeepsItsDtype) {
  const Tree<Array> params = {{"a", Array::full(DType::F32, {2}, 1)}, {"b", Array::full(DType::F64, {3}, 1)}};
  const auto updated = run(optim::Adam(0.1), params, params, 2).first;
  EXPECT_EQ(updated["a"].type(), params["a"].type());
  EXPECT_EQ(updated["b"].type(), params["b"].type());
  EXPECT_NEAR(updated["a"].at(0), updated["b"].at(0), 1e-6);
}

TEST(Optimizers, AdamWDecaysWhatTheMomentsDoNotSee) {
  // Gradient 0: only the decay acts, 1 - 0.1 * 0.2 a step.
  EXPECT_DOUBLE_EQ(run(optim::AdamW(0.1, 0.2), one(1), one(0), 2).first["w"].at(0), 0.98 * 0.98);
}

TEST(Optimizers, RmspropsTwoEpsilons) {
  // v = 0.01 g^2 and 0.1 g^2; g = 1.
  EXPECT_DOUBLE_EQ(run(optim::RMSprop(1, {.epsilon = 0.5}), one(0), one(1), 1).first["w"].at(0), -1 / (0.1 + 0.5));
  EXPECT_NEAR(run(optim::RMSprop(1, optim::RMSpropOptions::keras()), one(0), one(1), 1).first["w"].at(0),
              -1 / std::sqrt(0.1 + 1e-7), 1e-15);
}

// Of gradients that are all alike the mean of squares less the square of the mean is 0 but for rounding, below it too.
TEST(Optimizers, RmspropCentredOnWhatDoesNotChangeIsFinite) {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const double g : {0.1, 0.3, 7.0, 0.0}) {
      Tree<Array> params = one(0, dtype);
      const optim::RMSprop optimizer(1, {.decay = 0.5, .centered = true});
      double before = 0;
      for (const int steps : {20, 60, 120}) {
        const double at = run(optimizer, params, one(g, dtype), steps).first["w"].at(0);
        EXPECT_TRUE(std::isfinite(at)) << g;
        EXPECT_TRUE(g == 0 ? at == 0 : at < before) << g;
        // A step is bounded by what v resolves.
        EXPECT_GE(at, -steps / std::sqrt(dtype == DType::F32 ? 1e-7 : 2e-16)) << g;
        before = at;
      }
    }
}

TEST(Optimizers, ClippingByNormIsOverAllGradientsTogether) {
  const Tree<Array> params = {{"a", Array::full(DType::F64, {1}, 0)}, {"b", Array::full(DType::F32, {1}, 0)}};
  const Tree<Array> grads = {{"a", Array::full(DType::F64, {1}, 3)}, {"b", Array::full(DType::F32, {1}, 4)}};
  const Tree<Array> clipped = run(optim::ClipByNorm(optim::SGD(1), 1), params, grads, 1).first;
  EXPECT_NEAR(clipped["a"].at(0), -0.6, 1e-6);
  EXPECT_NEAR(clipped["b"].at(0), -0.8, 1e-6);
  EXPECT_EQ(run(optim::ClipByNorm(optim::SGD(1), 100), params, grads, 1).first["a"].at(0), -3);
  const Tree<Array> by_value = run(optim::ClipByValue(optim::SGD(1), 3.5), params, grads, 1).first;
  EXPECT_EQ(by_value["a"].at(0), -3);
  EXPECT_EQ(by_value["b"].at(0), -3.5);
}

TEST(Optimizers, EmaStartsFromTheInitialParameters) {
  const optim::EMA ema(optim::SGD(1), 0.5);
  const auto [params, state] = run(ema, one(8), one(2), 2);  // 8, 6, 4
  EXPECT_EQ(params["w"].at(0), 4);
  EXPECT_EQ(ema.evaluated(params, state)["w"].at(0), 0.5 * (0.5 * 8 + 0.5 * 6) + 0.5 * 4);
  EXPECT_EQ(optim::ClipByNorm(ema, 100).evaluated(params, state)["w"].at(0), state["average.w"].at(0));
}

// The factors of steps 0, 1, ... by an SGD on a constant gradient.
std::vector<double> rates(const optim::Schedule& schedule, int steps) {
  std::vector<double> all;
  double before = 0;
  for (int n = 1; n <= steps; ++n) {
    const double now = run(optim::SGD(schedule), one(0), one(1), n).first["w"].at(0);
    all.push_back(before - now);
    before = now;
  }
  return all;
}

void expect_rates(const std::vector<double>& rates, const std::vector<double>& expected) {
  ASSERT_EQ(rates.size(), expected.size());
  for (std::size_t i = 0; i < rates.size(); ++i) EXPECT_NEAR(rates[i], expected[i], 1e-14) << "step " << i;
}

TEST(Schedules, ByHand) {
  expect_rates(rates({2, {optim::Warmup(4, 0.2)}}, 6), {0.4, 0.8, 1.2, 1.6, 2, 2});
  expect_rates(rates({2, {optim::Cosine(4, 0.1)}}, 6),
               {2, 1.1 + 0.9 * std::sqrt(0.5), 1.1, 1.1 - 0.9 * std::sqrt(0.5), 0.2, 0.2});
  expect_rates(rates({2, {optim::StepDecay(2, 0.5)}}, 5), {2, 2, 1, 1, 0.5});
  // Up over steps 0..1, down over 1..4.
  expect_rates(rates({1, {optim::OneCycle(5, 0.4, 10, 5)}}, 6),
               {0.1, 1, 0.02 + 0.98 * 0.75, 0.02 + 0.98 * 0.25, 0.02, 0.02});
}

TEST(Schedules, FactorsMultiply) {
  expect_rates(rates({2, {optim::Warmup(2), optim::StepDecay(1, 0.5)}}, 4), {0, 0.5, 0.5, 0.25});
}

TEST(OptimizerRegistry, EveryOptimizerDescendsAParabola) {
  for (const auto& [name, optimizer] : sample_optimizers(0.01)) {
    const Gradient of_half_square = [](const Tree<Value>& params) { return params; };
    EXPECT_LT(std::abs(run(optimizer, one(1), of_half_square, 40).first["w"].at(0)), 0.95) << name;
  }
}

TEST(OptimizerRegistry, EveryStateStartsUnderTraceAsItDoesOutside) {
  auto optimizers = sample_optimizers();
  optimizers.emplace_back("both", optim::ClipByNorm(optim::EMA(optim::Adam(0.1)), 1));
  const Tree<Array> params = {{"a", one(8)}, {"b", one(-3, DType::F32)}};
  for (const auto& [name, optimizer] : optimizers) {
    const Tree<Array> wanted = optimizer.init(params);
    const std::vector<Array> got = run_traced(
        [&](std::span<const Value> in) {
          const Tree<Value> state = optimizer.traced_init(params.unflatten(in));
          EXPECT_EQ(state.names(), wanted.names()) << name;
          return state.flatten();
        },
        params.flatten());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], wanted.flatten()[i])) << name << ", " << i;
  }
}

TEST(OptimizerRegistry, EverythingIsDescribed) {
  const auto check = [](const auto& defs) {
    for (const auto& def : defs) {
      EXPECT_FALSE(def.summary.empty()) << def.name;
      for (const Parameter& p : def.parameters) EXPECT_FALSE(p.doc.empty()) << def.name << "." << p.name;
    }
  };
  check(optim::all_optimizers());
  check(optim::all_schedules());
  check(optim::all_wrappers());
}

}  // namespace
}  // namespace hotloop::testing
