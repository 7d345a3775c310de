// The training loop on the oracle: order of the samples, last batch, best epoch, bad losses, stopping.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "hotloop/hotloop.h"

namespace hotloop::train {
namespace {

// y = sum of (j + 1) x_j + 0.5: n samples of k features.
data::ArrayDataset linear_data(std::int64_t n, std::int64_t k, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<double> x, y;
  for (std::int64_t i = 0; i < n; ++i) {
    double sum = 0.5;
    for (std::int64_t j = 0; j < k; ++j) {
      x.push_back(normal(rng));
      sum += x.back() * static_cast<double>(j + 1);
    }
    y.push_back(sum);
  }
  return {Array::from(x, {n, k}), Array::from(y, {n, 1})};
}

FitOptions options_of(std::int64_t epochs) {
  FitOptions options{.optimizer = optim::SGD(0.05), .batch_size = 8, .epochs = epochs, .seed = 3};
  options.compile.backend = "interp";
  return options;
}

TEST(Shuffled, IsAPermutationThatDependsOnSeedAndEpoch) {
  for (const std::int64_t n : {0, 1, 2, 100}) {
    std::vector<std::int64_t> order = shuffled(n, 5, 1);
    std::ranges::sort(order);
    for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  EXPECT_EQ(shuffled(100, 5, 1), shuffled(100, 5, 1));
  EXPECT_NE(shuffled(100, 5, 1), shuffled(100, 5, 2));
  EXPECT_NE(shuffled(100, 5, 1), shuffled(100, 6, 1));
}

TEST(Shuffled, EveryPositionIsEquallyLikely) {
  // 6 samples, 60,000 epochs: each of 36 counts is binomial(60000, 1/6) with standard deviation 91.
  std::array<std::array<int, 6>, 6> counts{};
  for (std::uint64_t epoch = 0; epoch < 60000; ++epoch) {
    const auto order = shuffled(6, 42, epoch);
    for (std::size_t i = 0; i < 6; ++i) ++counts[i][static_cast<std::size_t>(order[i])];
  }
  for (const auto& row : counts)
    for (const int count : row) EXPECT_NEAR(count, 10000, 5 * 91);
}

TEST(Fit, LearnsALinearFunctionWithAPartialLastBatch) {
  const auto training = linear_data(37, 2, 1), validation = linear_data(11, 2, 2);  // 37 = 4 * 8 + 5
  const nn::Linear model(2, 1);
  const FitResult run = fit(model, training, validation, options_of(30));
  EXPECT_EQ(run.status, FitResult::Status::Finished);
  EXPECT_EQ(run.history.size(), 30u);
  EXPECT_EQ(run.times.num_steps, 30 * 5);
  EXPECT_LT(run.best_validation, 1e-3);
  EXPECT_NEAR(run.params["weight"].at(0), 1, 1e-3);
  EXPECT_NEAR(run.params["weight"].at(1), 2, 1e-3);
  EXPECT_NEAR(run.params["bias"].at(0), 0.5, 1e-3);
  CompileOptions interp;
  interp.backend = "interp";
  const Array predicted = predict(model, run.params, validation, 4, interp);
  EXPECT_EQ(predicted.shape(), (Shape{11, 1}));
  EXPECT_EQ(evaluate_metric(Metric::mae(), predicted, validation), run.best_validation);
}

// One epoch is the steps of the definition, one batch after another, gradients written out by hand.
TEST(Fit, AnEpochIsTheStepsOfItsBatches) {
  const auto training = linear_data(20, 1, 4), validation = linear_data(3, 1, 5);
  const nn::Linear model(1, 1);
  const FitOptions options = options_of(1);
  const FitResult run = fit(model, training, validation, options);
  const Tree<Array> initial = model.init(options.seed, DType::F64);
  double w = initial["weight"].at(0), b = initial["bias"].at(0), total = 0;
  const auto order = shuffled(20, nn::fold_in(options.seed, "shuffle"), 1);
  for (std::size_t start = 0; start < 20; start += 8) {
    const std::size_t n = std::min<std::size_t>(8, 20 - start);
    double dw = 0, db = 0;
    for (std::size_t i = start; i < start + n; ++i) {
      double x = 0, y = 0;
      training.gather(std::span(&order[i], 1), &x, &y);
      const double difference = w * x + b - y;
      total += difference * difference;
      dw += 2 * difference * x / static_cast<double>(n);
      db += 2 * difference / static_cast<double>(n);
    }
    w -= 0.05 * dw;
    b -= 0.05 * db;
  }
  EXPECT_NEAR(run.params["weight"].at(0), w, 1e-12);
  EXPECT_NEAR(run.params["bias"].at(0), b, 1e-12);
  EXPECT_NEAR(run.history[0].train_loss, total / 20, 1e-12);
}

TEST(Fit, TheBestEpochIsKept) {
  const auto training = linear_data(16, 1, 6);
  // Validation wants the opposite of what training teaches: the first epoch is the best.
  const data::ArrayDataset validation(Array::from(std::vector<double>{1, -1}, {2, 1}),
                                      Array::from(std::vector<double>{-100, 100}, {2, 1}));
  const FitResult run = fit(nn::Linear(1, 1), training, validation, options_of(5));
  EXPECT_EQ(run.best_epoch, 1);
  EXPECT_EQ(run.best_validation, run.history[0].validation);
  EXPECT_LT(run.best_validation, run.history[4].validation);
  FitOptions one = options_of(1);
  const FitResult first = fit(nn::Linear(1, 1), training, validation, one);
  EXPECT_EQ(run.params["weight"].at(0), first.params["weight"].at(0));
}

TEST(Fit, ALossThatIsNotFiniteIsAnOutcome) {
  const auto training = linear_data(16, 1, 7);
  FitOptions options = options_of(400);
  options.optimizer = optim::SGD(1e3);
  const FitResult run = fit(nn::Linear(1, 1), training, training, options);
  EXPECT_EQ(run.status, FitResult::Status::NonFiniteLoss);
  EXPECT_NE(run.message.find("The loss was not finite at step "), std::string::npos) << run.message;
  EXPECT_NE(run.message.find("a smaller learning_rate"), std::string::npos);
  EXPECT_TRUE(std::isfinite(run.params["weight"].at(0)));
}

TEST(Fit, StopsAfterTheStepUnderWay) {
  const auto training = linear_data(64, 1, 8);
  std::atomic<bool> stop{false};
  FitOptions options = options_of(100);
  options.stop = &stop;
  std::int64_t told = 0;
  options.on_progress = [&](const Progress& p) {
    if (!p.epoch_done) ++told;
    if (p.epoch == 2 && p.step == 3) stop = true;
  };
  const FitResult run = fit(nn::Linear(1, 1), training, training, options);
  EXPECT_EQ(run.status, FitResult::Status::Stopped);
  EXPECT_EQ(run.best_epoch, 1);
  EXPECT_EQ(run.times.num_steps, 8 + 4);
  EXPECT_EQ(told, 12);
}

TEST(Fit, Refusals) {
  const auto samples = linear_data(8, 2, 9);
  const auto message = [&](const FitOptions& options, const data::Dataset& validation) -> std::string {
    try {
      fit(nn::Linear(2, 1), samples, validation, options);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  FitOptions options = options_of(1);
  EXPECT_EQ(message(options, samples), "accepted");
  EXPECT_EQ(message(options, linear_data(3, 4, 1)),
            "[fit] training and validation samples must have the same shapes and dtype. Received: f64[2] and f64[4].");
  options.batch_size = 0;
  EXPECT_EQ(message(options, samples), "[fit] batch_size must be positive. Received: 0.");
  options = options_of(0);
  EXPECT_EQ(message(options, samples), "[fit] epochs must be positive. Received: 0.");
}

}  // namespace
}  // namespace hotloop::train
