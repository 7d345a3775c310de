#include "hotloop/optim.h"

#include "nn_testing.h"
#include "optim/registry.h"

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

TEST(OptimizerRegistry, EveryOptimizerDescendsAParabola) {
  for (const optim::OptimizerDef& def : optim::all_optimizers()) {
    EXPECT_FALSE(def.summary.empty()) << def.name;
    for (const Parameter& p : def.parameters) EXPECT_FALSE(p.doc.empty()) << def.name << "." << p.name;
    const Optimizer optimizer = optim::make_optimizer(def.name, {{"learning_rate", 0.01}});
    const Gradient of_half_square = [](const Tree<Value>& params) { return params; };
    EXPECT_LT(std::abs(run(optimizer, one(1), of_half_square, 40).first["w"].at(0)), 0.8) << def.name;
  }
}

}  // namespace
}  // namespace hotloop::testing
