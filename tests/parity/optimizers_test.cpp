// Trajectories of optimisers agree with PyTorch's and Keras'.
#include "nn_testing.h"
#include "optim/registry.h"
#include "parity/recorded.h"

namespace hotloop::testing {
namespace {

class OptimizerParity : public ::testing::TestWithParam<RecordedCase> {};

TEST_P(OptimizerParity, Trajectory) {
  const RecordedCase& c = GetParam();
  const nn::LayerConfig config = config_of(c.json().at("optimizer"));
  const optim::Optimizer optimizer = optim::make_optimizer(config.type, config.settings);
  Tree<Array> params = tree_of(c.json().at("params"), c.dtype);
  Tree<Array> state = optimizer.init(params);
  const std::size_t p = params.num_leaves(), s = state.num_leaves();

  for (std::size_t step = 0; step < c.json().at("grads").size(); ++step) {
    std::vector<Array> arrays = tree_of(c.json().at("grads").at(step), c.dtype).flatten();
    for (const Array& a : state.flatten()) arrays.push_back(a);
    for (const Array& a : params.flatten()) arrays.push_back(a);
    const std::vector<Array> results = run_traced(
        [&](std::span<const Value> in) {
          const auto [new_params, new_state] = optimizer.update(
              params.unflatten(in.first(p)), state.unflatten(in.subspan(p, s)), params.unflatten(in.subspan(p + s)));
          std::vector<Value> out = new_params.flatten();
          for (Value v : new_state.flatten()) out.push_back(v);
          return out;
        },
        arrays, backend_named(c.backend));
    params = params.unflatten(std::span(results).first(p));
    state = state.unflatten(std::span(results).subspan(p));
    const Tree<Array> theirs = tree_of(c.values().at(step), c.dtype);
    ASSERT_EQ(theirs.names(), params.names());
    for (std::size_t i = 0; i < p; ++i)
      EXPECT_LE(difference(params.flatten()[i], theirs.flatten()[i]), c.tolerance())
          << "step " << step << ", " << params.names()[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, OptimizerParity, ::testing::ValuesIn(all_recorded("optimizers")),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace hotloop::testing
