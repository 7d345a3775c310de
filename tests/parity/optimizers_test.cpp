// Trajectories of optimisers agree with PyTorch's and Keras'.
#include "nn_testing.h"
#include "optim/registry.h"
#include "parity/recorded.h"

namespace hotloop::testing {
namespace {

class OptimizerParity : public ::testing::TestWithParam<RecordedCase> {};

TEST_P(OptimizerParity, Trajectory) {
  const RecordedCase& c = GetParam();
  const optim::Optimizer optimizer = optimizer_of(c.json().at("optimizer"));
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

// Factors of torch.optim.lr_scheduler at each step, or of a plateau after each observed value.
TEST(ScheduleParity, Factors) {
  for (const Json& c : recorded("torch").at("schedules")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const nn::LayerConfig config = config_of(c.at("schedule"));
    const optim::ScheduleFactor schedule = optim::make_schedule({config.type, config.settings});
    Tree<Array> state = schedule->init();
    const std::size_t s = state.num_leaves();
    for (std::size_t step = 0; step < c.at("factors").size(); ++step) {
      std::vector<Array> arrays = state.flatten();
      arrays.push_back(Array::scalar(static_cast<std::int32_t>(step)));
      if (c.contains("values")) arrays.push_back(Array::scalar(c.at("values").at(step).get<double>()));
      const auto fn = [&](std::span<const Value> in) {
        Tree<Value> now = state.unflatten(in.first(s));
        if (in.size() > s + 1) now = schedule->observe(now, in[s + 1]);
        std::vector<Value> out = now.flatten();
        out.push_back(schedule->factor(in[s], now));
        return out;
      };
      const std::vector<Array> results = run_traced(fn, arrays);
      for (const Backend& backend : all_backends())
        if (step % 7 == 3)  // compiling each step would say no more
          EXPECT_LE(difference(run_traced(fn, arrays, backend).back(), results.back()), 1e-14) << backend.name;
      state = state.unflatten(std::span(results).first(s));
      EXPECT_NEAR(results.back().at(0), c.at("factors").at(step).get<double>(), 1e-12) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace hotloop::testing
