#include "hotloop/losses.h"

#include "nn/registry.h"
#include "nn_testing.h"
#include "registry_samples.h"

namespace hotloop::testing {
namespace {

double value_of(const losses::Loss& loss, const Array& prediction, const Array& target) {
  return run_traced([&](std::span<const Value> in) { return std::vector<Value>{loss(in[0], in[1])}; },
                    {prediction, target})[0]
      .at(0);
}

TEST(Losses, MeansOverAllElements) {
  const Array prediction = Array::from<double>({1, 2, 3, 4, 5, 6}, {3, 2}),
              target = Array::from<double>({0, 2, 5, 4, 5, 5}, {3, 2});
  EXPECT_DOUBLE_EQ(value_of(losses::MSE(), prediction, target), (1 + 4 + 1) / 6.0);
  EXPECT_DOUBLE_EQ(value_of(losses::MAE(), prediction, target), (1 + 2 + 1) / 6.0);
  EXPECT_FLOAT_EQ(static_cast<float>(value_of(losses::MSE(), prediction.cast(DType::F32), target.cast(DType::F32))),
                  1.0f);
}

TEST(Losses, AnyFunctionIsALoss) {
  const losses::Loss cubes([](Value a, Value b) { return sum(abs(a - b) * square(a - b)); }, "cubes");
  EXPECT_EQ(value_of(cubes, Array::from<double>({1, 4}, {2}), Array::from<double>({0, 2}, {2})), 9);
}

Array row(const std::vector<double>& values) {
  return Array::from(values, {1, static_cast<std::int64_t>(values.size())});
}

TEST(Losses, HuberIsLinearBeyondDelta) {
  EXPECT_DOUBLE_EQ(value_of(losses::Huber(2), row({1, 5, -5}), row({0, 0, 0})), (0.5 + 2 * 4 + 2 * 4) / 3);
}

TEST(Losses, QuantileIsLeastAtTheQuantile) {
  // Of 1, 2, ..., 9 the quantile 0.25 lies at 3 (2.25 from the left); neighbours are worse.
  const losses::Quantile loss({0.25});
  const auto at = [&](double guess) {
    return value_of(loss, Array::full(DType::F64, {9, 1}, guess),
                    Array::from<double>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {9}));
  };
  EXPECT_LT(at(3), at(2.9));
  EXPECT_LT(at(3), at(3.1));
  EXPECT_DOUBLE_EQ(value_of(losses::Quantile({0.1, 0.9}), row({0, 0}), Array::full(DType::F64, {1}, 2)),
                   (0.1 * 2 + 0.9 * 2) / 2);
}

TEST(Losses, CrossEntropyOfEveryKindOfTarget) {
  const Array logits = Array::from<double>({1, 2, 0.5, -1, 0, 3}, {2, 3});
  const auto log_sum = [](double a, double b, double c) { return std::log(std::exp(a) + std::exp(b) + std::exp(c)); };
  const double expected = (log_sum(1, 2, 0.5) - 2 + log_sum(-1, 0, 3) - -1) / 2;
  const losses::CrossEntropy loss;
  EXPECT_NEAR(value_of(loss, logits, Array::from<std::int32_t>({1, 0}, {2})), expected, 1e-15);
  EXPECT_NEAR(value_of(loss, logits, Array::from<std::int64_t>({1, 0}, {2, 1})), expected, 1e-15);
  EXPECT_NEAR(value_of(loss, logits, Array::from<double>({1, 0}, {2})), expected, 1e-15);
  EXPECT_NEAR(value_of(loss, logits, Array::from<double>({0, 1, 0, 1, 0, 0}, {2, 3})), expected, 1e-15);
  const Array probabilities = apply_on(nn::Activation("softmax"), {}, logits)[0];
  EXPECT_NEAR(value_of(losses::CrossEntropy(false), probabilities, Array::from<std::int32_t>({1, 0}, {2})), expected,
              1e-14);
}

// As i32 it would be class 1.
TEST(Losses, AClassBeyond32BitsIsNone) {
  const Array logits = Array::from<double>({1, 2, 0.5, -1, 0, 3}, {2, 3});
  for (const std::int64_t none : {std::int64_t{4294967297}, std::int64_t{-4294967295}})
    EXPECT_EQ(value_of(losses::CrossEntropy(), logits, Array::from<std::int64_t>({none, 0}, {2})),
              value_of(losses::CrossEntropy(), logits, Array::from<std::int64_t>({-1, 0}, {2})));
  EXPECT_EQ(value_of(losses::CrossEntropy(), logits, Array::from<std::uint32_t>({4294967295u, 0}, {2})),
            value_of(losses::CrossEntropy(), logits, Array::from<std::int64_t>({-1, 0}, {2})));
}

TEST(Losses, NothingOverflows) {
  const Array big = row({1e4, -1e4, 0});
  EXPECT_DOUBLE_EQ(value_of(losses::CrossEntropy(), big, Array::from<std::int32_t>({1}, {1})), 2e4);
  EXPECT_EQ(value_of(losses::BinaryCrossEntropy(), row({1e4, -1e4}), row({1, 0})), 0);
  EXPECT_EQ(value_of(losses::BinaryCrossEntropy(), row({1e4, -1e4}), row({0, 1})), 1e4);
  EXPECT_EQ(value_of(losses::BinaryCrossEntropy(false), row({1, 0}), row({0, 1})), 100);
}

TEST(Losses, ClassWeightsWeighTheTargetsClass) {
  const auto weighted = [](const losses::Loss& loss, const Array& prediction, const Array& target,
                           const Array& weights) {
    const std::vector<Array> out = run_traced(
        [&](std::span<const Value> in) {
          const auto result = loss(in[0], in[1], losses::Weights{.classes = in[2]});
          return std::vector<Value>{result.loss, result.total};
        },
        {prediction, target, weights});
    return std::pair(out[0].at(0), out[1].at(0));
  };
  const Array logits = Array::from<double>({1, 2, 0.5, -1, 0, 3}, {2, 3});
  const losses::CrossEntropy loss;
  const double first = value_of(loss, row({1, 2, 0.5}), Array::from<std::int32_t>({1}, {1})),
               second = value_of(loss, row({-1, 0, 3}), Array::from<std::int32_t>({0}, {1}));
  const auto [mean, total] =
      weighted(loss, logits, Array::from<std::int32_t>({1, 0}, {2}), Array::from<double>({3, 0.5, 9}, {3}));
  EXPECT_NEAR(mean, (0.5 * first + 3 * second) / 3.5, 1e-15);
  EXPECT_EQ(total, 3.5);
  EXPECT_EQ(message_of([&] {
              weighted(losses::MSE(), logits, logits, Array::from<double>({1, 1}, {2}));
            }),
            "[mse] class weights need a loss over classes. Received: 'mse'. Try: sample weights.");
}

TEST(LossRegistry, LossesOfNumbersAreZeroForAPerfectPrediction) {
  const Array y = nn::uniform(1, {4, 3}, DType::F64, -1, 1);
  for (const char* name : {"huber", "mae", "mse"}) EXPECT_EQ(value_of(losses::make_loss(name), y, y), 0) << name;
}

TEST(LossRegistry, EveryLossIsDescribedAndAMeanOverElements) {
  for (const losses::LossDef& def : losses::all_losses()) {
    EXPECT_FALSE(def.summary.empty()) << def.name;
    for (const Parameter& p : def.parameters) EXPECT_FALSE(p.doc.empty()) << def.name << "." << p.name;
    const losses::Loss loss = losses::make_loss(def.name);
    EXPECT_EQ(loss.name(), def.name);
    const Array prediction = nn::uniform(1, {4, 3}, DType::F64, 0.1, 0.9);
    const Array target = nn::uniform(2, target_shape(loss, prediction.type()), DType::F64, 0, 1);
    const std::vector<Array> out = run_traced(
        [&](std::span<const Value> in) {
          return std::vector<Value>{loss(in[0], in[1]), loss(in[0], in[1], {.samples = in[2]}).loss};
        },
        {prediction, target, Array::full(DType::F64, {4}, 0.3)});
    EXPECT_NEAR(out[1].at(0), out[0].at(0), 1e-14) << def.name << ": equal weights change nothing";
  }
}

}  // namespace
}  // namespace hotloop::testing
