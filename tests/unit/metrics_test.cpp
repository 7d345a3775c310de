#include "hotloop/metrics.h"

#include <cmath>

#include "hotloop/fit.h"
#include "nn_testing.h"
#include "train/metrics.h"

namespace hotloop::testing {
namespace {

using metrics::Metric;

struct Sample {
  std::vector<double> prediction, target;
  double weight = 1;
};

double value_of(const Metric& metric, const std::vector<Sample>& samples) {
  const auto accumulator = metric.start();
  for (const Sample& s : samples) accumulator->add(s.prediction, s.target, s.weight);
  return accumulator->value();
}

TEST(Metrics, ErrorsByHand) {
  const std::vector<Sample> samples = {{{1, 2}, {0, 2}}, {{3, 5}, {5, 5}}};
  EXPECT_DOUBLE_EQ(value_of(metrics::MAE(), samples), 3 / 4.0);
  EXPECT_DOUBLE_EQ(value_of(metrics::MSE(), samples), 5 / 4.0);
  EXPECT_DOUBLE_EQ(value_of(metrics::RMSE(), samples), std::sqrt(5 / 4.0));
}

TEST(Metrics, R2IsOfTheWholeDataset) {
  // Two numbers a target: residuals 1 and 0.25 against totals 2 and 0.5.
  EXPECT_NEAR(value_of(metrics::R2(), {{{2, 0}, {1, 0}}, {{2, 0.5}, {2, 0.5}}, {{3, 0.5}, {3, 1}}}),
              (1 - 1 / 2.0 + 1 - 0.25 / 0.5) / 2, 1e-15);
  EXPECT_EQ(value_of(metrics::R2(), {{{4}, {4}}, {{4}, {4}}}), 1);
  EXPECT_EQ(value_of(metrics::R2(), {{{4}, {4}}, {{5}, {4}}}), 0);
  // A large mean does not cancel.
  EXPECT_NEAR(value_of(metrics::R2(), {{{1e8}, {1e8 - 1}}, {{1e8}, {1e8 + 1}}}), 0, 1e-12);
}

TEST(Metrics, ClassesAreIndicesOneHotOrABinaryScore) {
  EXPECT_EQ(value_of(metrics::Accuracy(), {{{0.1, 0.9, 0}, {1}}, {{5, 1, 2}, {2}}}), 0.5);
  EXPECT_EQ(value_of(metrics::Accuracy(), {{{0.1, 0.9, 0}, {0, 1, 0}}, {{5, 1, 2}, {0, 0, 1}}}), 0.5);
  EXPECT_EQ(value_of(metrics::Accuracy(), {{{0.2}, {1}}, {{-0.2}, {0}}, {{0.4}, {0}}}), 2 / 3.0);
  EXPECT_EQ(value_of(metrics::Accuracy(0.5), {{{0.2}, {1}}, {{0.6}, {1}}}), 0.5);
}

TEST(Metrics, F1IsTheMeanOverClasses) {
  // Targets 0 0 0 1, predictions 0 0 1 1: F1 of 0 is 4/5, of 1 2/3; class 2 occurs nowhere.
  const std::vector<Sample> samples = {{{1, 0, 0}, {0}}, {{1, 0, 0}, {0}}, {{0, 1, 0}, {0}}, {{0, 1, 0}, {1}}};
  EXPECT_NEAR(value_of(metrics::F1(), samples), (4 / 5.0 + 2 / 3.0) / 2, 1e-15);
}

TEST(Metrics, AUCIsTheShareOfPairsInOrder) {
  // Class 1 has 0.9 and 0.4, class 0 has 0.5, 0.4 and 0.1: of six pairs four are in order, and one is equal.
  const std::vector<Sample> scores = {{{0.9}, {1}}, {{0.4}, {1}}, {{0.5}, {0}}, {{0.4}, {0}}, {{0.1}, {0}}};
  EXPECT_DOUBLE_EQ(value_of(metrics::AUC(), scores), 4.5 / 6);
  // As two outputs, also with one number a class as the target.
  std::vector<Sample> pairs = scores;
  for (Sample& s : pairs) s = {{1 - s.prediction[0], s.prediction[0]}, {1 - s.target[0], s.target[0]}};
  EXPECT_DOUBLE_EQ(value_of(metrics::AUC(), pairs), 4.5 / 6);
  EXPECT_TRUE(std::isnan(value_of(metrics::AUC(), {{{0.9}, {1}}, {{0.4}, {1}}})));
  EXPECT_TRUE(std::isnan(value_of(metrics::AUC(), {{{0.9}, {1}}, {{std::nan("")}, {0}}})));
  EXPECT_EQ(message_of([] {
              value_of(metrics::AUC(), {{{0.1, 0.2, 0.7}, {2}}});
            }),
            "[auc] there must be two classes. Received: 3 predictions a sample. Try: accuracy or f1, which are of any "
            "number of classes.");
}

TEST(Metrics, EveryMetricWithAWeightIsOneWithARepetition) {
  for (const metrics::MetricDef& def : metrics::all_metrics()) {
    EXPECT_FALSE(def.summary.empty()) << def.name;
    const Metric metric = metrics::make_metric(def.name);
    EXPECT_EQ(metric.name(), def.name);
    const std::vector<Sample> weighted = {{{0.8, 0.3}, {1, 0}}, {{0.4, 0.1}, {0, 1}, 2}, {{0.2, 0.7}, {0.3, 1}}};
    std::vector<Sample> repeated = weighted;
    repeated[1].weight = 1;
    repeated.push_back(repeated[1]);
    EXPECT_NEAR(value_of(metric, weighted), value_of(metric, repeated), 1e-14) << def.name;
    EXPECT_TRUE(std::isnan(value_of(metric, {}))) << def.name;
    EXPECT_TRUE(std::isfinite(value_of(metric, weighted))) << def.name;
  }
}

TEST(Metrics, BetterIsSmallerOrLarger) {
  const double nan = std::nan("");
  EXPECT_TRUE(metrics::MAE().is_better(1, 2));
  EXPECT_FALSE(metrics::MAE().is_better(2, 2));
  EXPECT_TRUE(metrics::Accuracy().is_better(0.9, 0.8));
  EXPECT_TRUE(metrics::Accuracy().is_better(0, nan));
  EXPECT_FALSE(metrics::MAE().is_better(nan, 5));
}

TEST(Metrics, WrongTargetsAreTold) {
  EXPECT_EQ(message_of([] {
              value_of(metrics::Accuracy(), {{{0.1, 0.9}, {2}}});
            }),
            "[accuracy] a target must be a class index, a whole number from 0 and below 2. Received: 2. "
            "Try: labels counted from 0, or a model with one output a class.");
  EXPECT_EQ(
      message_of([] {
        value_of(metrics::MAE(), {{{0.1, 0.9}, {2}}});
      }),
      "[mae] there must be one prediction a target. Received: 2 predictions and 1 targets a sample. Try: a metric of "
      "classes, accuracy say, if the targets are classes.");
}

TEST(Metrics, SamplesOfWeightZeroMayBeAnything) {
  const double nan = std::nan("");
  const Array weights = Array::from<double>({1, 0, 2}, {3}), kept = Array::from<double>({1, 2}, {2});
  const auto value = [&](const metrics::Metric& metric, const Array& predictions, const Array& targets,
                         const Array& of_samples) {
    const data::ArrayDataset samples(Array::zeros(DType::F64, {targets.shape()[0], 2}), targets, {}, of_samples);
    return train::evaluate_metric(metric, predictions, samples);
  };
  for (const metrics::MetricDef& def : metrics::all_metrics()) {
    const metrics::Metric metric = metrics::make_metric(def.name);
    const bool classes = def.of == metrics::Of::Classes;
    const auto targets = [&](std::vector<double> all) {
      const auto n = std::ssize(all);
      return classes ? Array::from(all, {n}).cast(DType::I32) : Array::from(all, {n, 1});
    };
    const double with =
        value(metric, Array::from<double>({-0.5, nan, 2}, {3, 1}), targets({0, classes ? -1 : nan, 1}), weights);
    EXPECT_TRUE(std::isfinite(with)) << def.name;
    EXPECT_EQ(with, value(metric, Array::from<double>({-0.5, 2}, {2, 1}), targets({0, 1}), kept)) << def.name;
  }
}

TEST(Metrics, SequencesAreComparedStepByStepUpToTheirLengths) {
  const Array predictions =
      Array::from<double>({1, 0, 0, 1, 9, 0, 0, 1, 1, 0, 1, 0}, {2, 3, 2});  // classes 0 1 0, 1 0 0
  const data::ArrayDataset samples(Array::zeros(DType::F64, {2, 3, 4}),
                                   Array::from<std::int32_t>({0, 0, 0, 1, 1, 1}, {2, 3}),
                                   Array::from<std::int32_t>({3, 1}, {2}));
  EXPECT_EQ(train::evaluate_metric(metrics::Accuracy(), predictions, samples, 100, 5), 3 / 4.0);
}

}  // namespace
}  // namespace hotloop::testing
