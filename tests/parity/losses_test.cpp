// Losses agree with PyTorch and Keras: values, and gradients of the prediction, weighted or not.
#include "hotloop/transforms.h"
#include "nn_testing.h"
#include "parity/recorded.h"

namespace hotloop::testing {
namespace {

class LossParity : public ::testing::TestWithParam<RecordedCase> {};

TEST_P(LossParity, ValueAndGradient) {
  const RecordedCase& c = GetParam();
  const nn::LayerConfig config = config_of(c.json().at("loss"));
  const losses::Loss loss = losses::make_loss(config.type, config.settings);
  std::vector<Array> arrays = {array_of(c.json().at("prediction"), c.dtype), array_of(c.json().at("target"), c.dtype)};
  const bool by_class = c.json().contains("class_weights"), by_sample = c.json().contains("sample_weights");
  if (by_class) arrays.push_back(array_of(c.json().at("class_weights"), c.dtype));
  if (by_sample) arrays.push_back(array_of(c.json().at("sample_weights"), c.dtype));
  const auto fn = [&](std::span<const Value> in) {
    losses::Weights weights;
    if (by_class) weights.classes = in[2];
    if (by_sample) weights.samples = in[2];
    return std::vector<Value>{loss(in[0], in[1], weights).loss};
  };
  const std::vector<Array> results = run_traced(value_and_grad(fn, {0}), arrays, backend_named(c.backend));
  EXPECT_NEAR(results[0].at(0), c.values().at("value").get<double>(), c.tolerance());
  EXPECT_LE(difference(results[1], array_of(c.values().at("grad"), c.dtype)), c.tolerance());
}

INSTANTIATE_TEST_SUITE_P(Recorded, LossParity, ::testing::ValuesIn(all_recorded("losses")),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace hotloop::testing
