// Whole training runs follow PyTorch's: losses of every step and the parameters at the end.
#include "hotloop/train.h"
#include "nn_testing.h"
#include "optim/registry.h"
#include "parity/recorded.h"

namespace hotloop::testing {
namespace {

class TrainingParity : public ::testing::TestWithParam<RecordedCase> {};

TEST_P(TrainingParity, LossesAndParameters) {
  const RecordedCase& c = GetParam();
  const Array x = array_of(c.json().at("x"), c.dtype), y = array_of(c.json().at("y"), c.dtype);
  std::vector<nn::LayerConfig> stack;
  for (const Json& layer : c.json().at("layers")) stack.push_back(config_of(layer));
  const optim::Optimizer optimizer = optimizer_of(c.json().at("optimizer"));
  Tree<Array> params = tree_of(c.json().at("params"), c.dtype);
  Tree<Array> state = optimizer.init(params);

  const train::Step step =
      train::train_step(nn::make_model(stack, x.type()), losses::make_loss(c.json().at("loss").get<std::string>()),
                        optimizer, params, state, x.type(), y.type());
  const std::shared_ptr<const Graph> graph = step.graph();
  const Backend backend = backend_named(c.backend);
  for (const Json& loss : c.values().at("losses")) {
    const std::vector<Array> results = backend.run(graph, step.arguments(params, state, x, y));
    params = params.unflatten(std::span(results).first(step.num_params));
    state = state.unflatten(std::span(results).subspan(step.num_params, step.num_state));
    EXPECT_NEAR(results.back().at(0), loss.get<double>(), c.tolerance());
  }
  const Tree<Array> theirs = tree_of(c.values().at("params"), c.dtype);
  for (const std::string& name : theirs.names())
    EXPECT_LE(difference(params[name], theirs[name]), c.tolerance()) << name;
  EXPECT_EQ(state["step"].at(0), static_cast<double>(c.values().at("losses").size()));
}

INSTANTIATE_TEST_SUITE_P(Recorded, TrainingParity, ::testing::ValuesIn(all_recorded("training")),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace hotloop::testing
