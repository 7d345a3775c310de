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

// By name.
Tree<Array> statistics_of(const losses::Loss& loss, const Array& prediction) {
  const Tree<Value> traced = [&] {
    Tree<Value> tree;
    trace(
        [&](std::span<const Value> in) {
          tree = loss.statistics(in[0]);
          return tree.flatten();
        },
        std::vector{prediction.type()});
    return tree;
  }();
  return traced.unflatten(
      run_traced([&](std::span<const Value> in) { return loss.statistics(in[0]).flatten(); }, {prediction}));
}

// The output whose softplus is `width`.
double raw_of(double width) { return std::log(std::expm1(width)); }

TEST(Losses, GaussianIsTheNormalDistributionsLogarithm) {
  const Array outputs = row({1.5, raw_of(2.0 - 1e-4)});
  const double expected = 0.5 * 0.75 * 0.75 + std::log(2) + 0.5 * std::log(2 * std::numbers::pi);
  EXPECT_NEAR(value_of(losses::Gaussian(), outputs, row({3})), expected, 1e-14);
  const Tree<Array> read = statistics_of(losses::Gaussian(), outputs);
  EXPECT_EQ(read.names(), (std::vector<std::string>{"mean", "std", "q10", "q90"}));
  EXPECT_EQ(read["mean"].at(0), 1.5);
  EXPECT_NEAR(read["std"].at(0), 2, 1e-14);
  EXPECT_NEAR(read["q90"].at(0), 1.5 + 2 * 1.2815515655446004, 1e-13);
  EXPECT_NEAR(read["q10"].at(0), 1.5 - 2 * 1.2815515655446004, 1e-13);
  EXPECT_EQ(statistics_of(losses::Gaussian(1e-4, 0.95), outputs).names()[2], "q2_5");
}

TEST(Losses, StudentTHasTheQuantilesOfTables) {
  const Array outputs = row({0, raw_of(1.0 - 1e-4)});
  // Of tables of the distribution: one sided 0.9 and 0.975.
  for (const auto& [df, reach] : {std::pair(1.0, 3.0776835371752527), {5.0, 1.475884048824481}, {30.0, 1.310415025358}})
    EXPECT_NEAR(statistics_of(losses::StudentT(df), outputs)["q90"].at(0), reach, 1e-9) << df;
  EXPECT_NEAR(statistics_of(losses::StudentT(10, 1e-4, 0.95), outputs)["q97_5"].at(0), 2.2281388519649385, 1e-9);
  // With many degrees of freedom the normal distribution's z, and (z^3 + z) / (4 df) more.
  const double z = 1.2815515655446004;
  for (const double df : {1e4, 1e5, 1e6, 1e7, 1e8, 1e12, 1e16, 1e300})
    EXPECT_NEAR(statistics_of(losses::StudentT(df), outputs)["q90"].at(0), z + (z * z * z + z) / (4 * df),
                1e-10 + 2 / (df * df))
        << df;
  // -log of 8 / (3 pi sqrt 5 (1 + t^2 / 5)^3), the density of 5 degrees of freedom.
  const double density = 8 / (3 * std::numbers::pi * std::sqrt(5) * std::pow(1 + 4 / 5.0, 3));
  EXPECT_NEAR(value_of(losses::StudentT(), outputs, row({2})), -std::log(density), 1e-13);
}

TEST(Losses, CountsHaveTheirProbabilities) {
  const double mean = 3.5;
  const Array log_mean = row({std::log(mean)});
  const double poisson = -std::log(std::exp(-mean) * std::pow(mean, 4) / 24);
  EXPECT_NEAR(value_of(losses::Poisson(true), log_mean, row({4})), poisson, 1e-13);
  EXPECT_NEAR(value_of(losses::Poisson(), log_mean, row({4})), poisson - std::log(24), 1e-13);
  EXPECT_NEAR(value_of(losses::Poisson(), log_mean, Array::from<std::int32_t>({4}, {1})), poisson - std::log(24),
              1e-13);
  // r = 2: the probability of 4 is (4 + 1) (r / (r + m))^2 (m / (r + m))^4.
  const Array outputs = row({std::log(mean), raw_of(0.5 - 1e-4)});
  const double negative_binomial = -std::log(5 * std::pow(2 / 5.5, 2) * std::pow(3.5 / 5.5, 4));
  EXPECT_NEAR(value_of(losses::NegativeBinomial(), outputs, row({4})), negative_binomial, 1e-12);
  EXPECT_NEAR(statistics_of(losses::NegativeBinomial(), outputs)["std"].at(0), std::sqrt(3.5 + 0.5 * 3.5 * 3.5), 1e-12);
  // Where the dispersion ends it is Poisson's, in f32 too.
  const Array none = row({std::log(mean), -40.0});
  EXPECT_NEAR(value_of(losses::NegativeBinomial(1e-7), none, row({4})), poisson, 1e-5);
  EXPECT_NEAR(value_of(losses::NegativeBinomial(1e-7), none.cast(DType::F32), row({4}).cast(DType::F32)), poisson,
              1e-5);
}

TEST(Losses, LogCoshNeverOverflows) {
  EXPECT_NEAR(value_of(losses::LogCosh(), row({0.5, -2}), row({0, 0})),
              (std::log(std::cosh(0.5)) + std::log(std::cosh(2))) / 2, 1e-15);
  EXPECT_NEAR(value_of(losses::LogCosh(), row({1e30}), row({0})), 1e30, 1e15);
}

TEST(Losses, OutputsOfSeveralNumbersLieSideBySide) {
  const losses::Gaussian loss;
  const Array outputs = Array::from<double>({1, 0.1, 2, 0.2, 3, 0.3, 4, 0.4}, {2, 4});
  const Array target = Array::from<double>({1.5, 2.5, 2, 4}, {2, 2});
  double expected = 0;
  for (std::int64_t i = 0; i < 4; ++i)
    expected += value_of(loss, row({outputs.at(2 * i), outputs.at(2 * i + 1)}), row({target.at(i)})) / 4;
  EXPECT_NEAR(value_of(loss, outputs, target), expected, 1e-14);
  const Tree<Array> read = statistics_of(loss, outputs);
  EXPECT_EQ(read["mean"].shape(), Shape({2, 2}));
  EXPECT_EQ(read["mean"].at(3), 4);
  // One number a row, with an axis of its own or without.
  const Array one = Array::from<double>({1, 0.1, 2, 0.2}, {2, 2});
  EXPECT_EQ(value_of(loss, one, Array::from<double>({0, 1}, {2})),
            value_of(loss, one, Array::from<double>({0, 1}, {2, 1})));
  EXPECT_EQ(message_of([&] { value_of(loss, outputs, one.cast(DType::F32)); }),
            "[gaussian] the prediction must have 2 outputs for each number of the target, on the last axis. Received: "
            "f64[2,4] and f32[2,2]. Try: a target in f64.");
  EXPECT_EQ(message_of([&] {
              value_of(loss, row({1, 2, 3}), row({1, 2, 3}));
            }),
            "[gaussian] the prediction must have 2 outputs for each number of the target, on the last axis. Received: "
            "f64[1,3] and f64[1,3]. Try: 6 outputs of the last layer (units = 6).");
  EXPECT_EQ(
      message_of([&] {
        statistics_of(loss, row({1, 2, 3}));
      }),
      "[gaussian] the last axis of a prediction must have 2 outputs for each number of the target (mean, std, q10, "
      "q90 are read off them). Received: f64[1,3].");
  EXPECT_EQ(statistics_of(losses::MSE(), one).names(), std::vector<std::string>{"prediction"});
}

TEST(Losses, SettingsOfDistributionsAreChecked) {
  EXPECT_EQ(message_of([] { losses::Gaussian(0); }), "[gaussian] epsilon must be positive. Received: 0.");
  EXPECT_EQ(message_of([] { losses::StudentT(0.5); }), "[student_t] df must be at least 1. Received: 0.5.");
  EXPECT_EQ(message_of([] { losses::StudentT(5, 1e-4, 1); }),
            "[student_t] interval must be between 0 and 1. Received: 1.");
}

// The probability of labels by definition: the sum over all ways that come to them once repeats and then blanks are dropped.
double probability_of_labels(const std::vector<std::vector<double>>& p, const std::vector<int>& labels) {
  const std::size_t steps = p.size(), classes = p[0].size();
  double total = 0;
  for (std::size_t way = 0; way < static_cast<std::size_t>(std::pow(classes, steps)); ++way) {
    std::vector<int> seen;
    double probability = 1;
    int before = -1;
    for (std::size_t t = 0, rest = way; t < steps; ++t, rest /= classes) {
      const auto symbol = static_cast<int>(rest % classes);
      probability *= p[t][static_cast<std::size_t>(symbol)];
      if (symbol != before && symbol != 0) seen.push_back(symbol);
      before = symbol;
    }
    if (seen == labels) total += probability;
  }
  return total;
}

TEST(Losses, CtcSumsOverAllWays) {
  constexpr std::int64_t steps = 5, classes = 3;
  const Array logits = nn::uniform(3, {1, steps, classes}, DType::F64, -2, 2);
  std::vector<std::vector<double>> p(steps, std::vector<double>(classes));
  for (std::int64_t t = 0; t < steps; ++t) {
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(logits.at(t * classes + c));
    for (std::int64_t c = 0; c < classes; ++c)
      p[static_cast<std::size_t>(t)][static_cast<std::size_t>(c)] = std::exp(logits.at(t * classes + c)) / sum;
  }
  const std::vector<std::vector<int>> all = {{}, {1}, {2, 1}, {1, 1}, {1, 2, 1}, {2, 2, 2}, {1, 2, 1, 2, 1}};
  for (const std::vector<int>& labels : all) {
    std::vector<std::int32_t> padded(5, -1);
    std::ranges::copy(labels, padded.begin());
    const double wanted = -std::log(probability_of_labels(p, labels));
    EXPECT_NEAR(value_of(losses::CTC(), logits, Array::from(padded, {1, 5})), wanted, 1e-13) << labels.size();
    // With the last two steps left out by the length.
    const std::vector<std::vector<double>> first(p.begin(), p.begin() + 3);
    const double shorter = -std::log(probability_of_labels(first, labels));
    const Array found = run_traced(
        [](std::span<const Value> in) {
          return std::vector<Value>{losses::CTC()(in[0], in[1], {.lengths = in[2]}).loss};
        },
        {logits, Array::from(padded, {1, 5}), Array::from<std::int32_t>({3}, {1})})[0];
    if (std::isinf(shorter))
      EXPECT_EQ(found.at(0), shorter) << labels.size();
    else
      EXPECT_NEAR(found.at(0), shorter, 1e-13) << labels.size();
  }
  const Array too_many = Array::from<std::int32_t>({1, 1, 1, 1}, {1, 4});  // seven steps at least
  EXPECT_EQ(value_of(losses::CTC(), logits, too_many), std::numeric_limits<double>::infinity());
  EXPECT_EQ(value_of(losses::CTC(0, true), logits, too_many), 0);
  EXPECT_EQ(
      message_of([&] { value_of(losses::CTC(3), logits, too_many); }),
      "[ctc] logits must be (batch, time, classes), the blank among the classes, and labels (batch, most labels of a "
      "row). Received: f64[1,5,3] and i32[1,4]. Try: labels that are negative behind the last one of a shorter row.");
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

// As a table's classes come: whole numbers, without an axis of their own.
TEST(Losses, BinaryCrossEntropyTakesNumbersOfClasses) {
  const Array logits = Array::from<double>({0.3, -2, 1.5}, {3, 1});
  const double expected = value_of(losses::BinaryCrossEntropy(), logits, Array::from<double>({1, 0, 0}, {3, 1}));
  EXPECT_EQ(value_of(losses::BinaryCrossEntropy(), logits, Array::from<std::int32_t>({1, 0, 0}, {3})), expected);
  EXPECT_EQ(value_of(losses::BinaryCrossEntropy(), logits, Array::from<std::int64_t>({1, 0, 0}, {3, 1})), expected);
  EXPECT_THROW(value_of(losses::BinaryCrossEntropy(), logits, Array::from<double>({1, 0, 0}, {3})), UserError);
}

TEST(Losses, SayWhichTargetsTheyTake) {
  EXPECT_EQ(losses::BinaryCrossEntropy().targets().str(), "from 0 to 1");
  EXPECT_EQ(losses::Poisson().targets().str(), "at least 0");
  EXPECT_TRUE(losses::NegativeBinomial().targets().is_bounded());
  EXPECT_FALSE(losses::MSE().targets().is_bounded());
  EXPECT_FALSE(losses::Poisson().targets().holds(-1e-9));
  EXPECT_EQ(losses::BinaryCrossEntropy().threshold(), 0);
  EXPECT_EQ(losses::BinaryCrossEntropy(false).threshold(), 0.5);
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
  for (const char* name : {"huber", "log_cosh", "mae", "mse"})
    EXPECT_EQ(value_of(losses::make_loss(name), y, y), 0) << name;
}

TEST(LossRegistry, EveryLossIsDescribedAndAMeanOverElements) {
  for (const losses::LossDef& def : losses::all_losses()) {
    EXPECT_FALSE(def.summary.empty()) << def.name;
    for (const Parameter& p : def.parameters) EXPECT_FALSE(p.doc.empty()) << def.name << "." << p.name;
    const losses::Loss loss = losses::make_loss(def.name);
    EXPECT_EQ(loss.name(), def.name);
    const Array prediction = nn::uniform(1, prediction_shape(loss, 4), DType::F64, 0.1, 0.9);
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
