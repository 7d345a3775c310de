// Checkpoints of the training loop, on the oracle: resuming, which are kept, what is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "fit_states.h"
#include "hotloop/hotloop.h"

namespace hotloop::train {
namespace {

class FitInFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "fitXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

// Stops after every number of steps there is, goes on from the file, and arrives where the uninterrupted run did.
TEST_F(FitInFolder, ResumingFromAnyStepIsBitwiseTheUninterruptedRun) {
  const auto training = linear_data(37, 2, 1), validation = linear_data(11, 2, 2);
  FitOptions options = options_of(3);
  options.optimizer = optim::Adam(0.05);
  options.early_stopping = {.patience = 2, .min_delta = 0.2};
  options.further_metrics = {metrics::RMSE(), metrics::R2()};
  const FitResult whole = fit(nn::Linear(2, 1), training, validation, options);
  EXPECT_EQ(whole.status, FitResult::Status::Finished);
  for (std::int64_t stop_after = 1; stop_after < whole.times.num_steps; ++stop_after) {
    FitOptions part = options;
    part.checkpoint = {.folder = folder_ / std::to_string(stop_after), .every_steps = 2};
    part.steps_per_call = 1 + stop_after % 3;
    std::atomic<bool> stop{false};
    part.stop = &stop;
    part.on_progress = [&](const Progress& p) {
      if (p.steps_here >= stop_after) stop = true;
    };
    fit(nn::Linear(2, 1), training, validation, part);
    const std::filesystem::path latest = latest_checkpoint(part.checkpoint.folder);
    ASSERT_FALSE(latest.empty());
    part.resume = std::make_shared<TrainingState>(load_checkpoint(latest));
    stop = false;
    part.on_progress = nullptr;
    const FitResult resumed = fit(nn::Linear(2, 1), training, validation, part);
    EXPECT_EQ(bits(resumed.state), bits(whole.state)) << stop_after;
    EXPECT_EQ(bits(load_checkpoint(latest_checkpoint(part.checkpoint.folder))), bits(whole.state)) << stop_after;
    EXPECT_EQ(resumed.params["weight"].at(0), whole.params["weight"].at(0));
    EXPECT_EQ(resumed.history.size(), whole.history.size());
  }
}

TEST_F(FitInFolder, KeepsTheNewestCheckpoints) {
  const auto training = linear_data(16, 1, 1);
  FitOptions options = options_of(6);
  options.checkpoint = {.folder = folder_, .keep = 2};
  const FitResult run = fit(nn::Linear(1, 1), training, training, options);
  std::int64_t folders = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++folders;
  EXPECT_LE(folders, 2);
  const std::filesystem::path last = latest_checkpoint(folder_);
  EXPECT_EQ(last.filename(), "step-00000012");
  EXPECT_EQ(bits(load_checkpoint(last)), bits(run.state));
}

// A metric beside the one that chooses may have no value. Of epochs that no metric was recorded of, as older versions wrote all, there is none.
TEST_F(FitInFolder, MetricsWithoutAValueAreKept) {
  const auto training = linear_data(16, 1, 1);
  FitOptions options = options_of(1);
  options.validate = false;
  options.checkpoint = {.folder = folder_, .keep = 9};
  options.resume = std::make_shared<TrainingState>(fit(nn::Linear(1, 1), training, training, options).state);
  options.epochs = 2;
  options.validate = true;
  class NoValue : public metrics::Accumulator {
   public:
    void add(std::span<const double>, std::span<const double>, double) override {}
    double value() const override { return std::numeric_limits<double>::quiet_NaN(); }
  };
  options.further_metrics = {
      metrics::Metric("never", metrics::Better::Larger, 0, [] { return std::make_unique<NoValue>(); }), metrics::MSE()};
  const FitResult run = fit(nn::Linear(1, 1), training, training, options);
  EXPECT_EQ(run.status, FitResult::Status::Finished);
  const TrainingState loaded = load_checkpoint(latest_checkpoint(folder_));
  ASSERT_EQ(loaded.history.size(), 2u);
  EXPECT_TRUE(loaded.history[0].metrics.empty());
  ASSERT_EQ(loaded.history[1].metrics.size(), 3u);
  EXPECT_EQ(loaded.history[1].metrics[1].first, "never");
  EXPECT_TRUE(std::isnan(loaded.history[1].metrics[1].second));
  EXPECT_EQ(loaded.history[1].metrics[2], run.history[1].metrics[2]);
}

// Steps of one run would stand for those of another, and the newest be taken for the last.
TEST_F(FitInFolder, TwoRunsDoNotMix) {
  const auto training = linear_data(16, 1, 1);
  FitOptions options = options_of(2);
  options.checkpoint = {.folder = folder_, .keep = 9};
  const auto older = std::make_shared<TrainingState>(fit(nn::Linear(1, 1), training, training, options).state);
  options.epochs = 4;
  options.resume = older;
  const FitResult run = fit(nn::Linear(1, 1), training, training, options);
  options.resume = nullptr;
  const auto message = [&] {
    try {
      fit(nn::Linear(1, 1), training, training, options);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const std::string latest = folder_ / "step-00000008";
  EXPECT_EQ(message(),
            "[checkpoint] the folder of a fit that does not resume must hold no checkpoints, or those of two runs mix. "
            "Received: " +
                latest + ". Try: resume from that folder, or name another one, or delete it.");
  options.resume = older;
  EXPECT_EQ(
      message(),
      "[checkpoint] the folder must hold no checkpoint later than the one that is resumed, after step 4. Received: " +
          latest + ". Try: resume from the latest, or name another folder, or delete what is later.");
  for (const char* later : {"step-00000006", "step-00000008"}) std::filesystem::remove_all(folder_ / later);
  EXPECT_EQ(message(), "accepted");
  EXPECT_EQ(bits(load_checkpoint(latest)), bits(run.state));
}

TEST_F(FitInFolder, RefusesAStateOfAnotherTraining) {
  const auto training = linear_data(16, 1, 1);
  FitOptions options = options_of(2);
  options.checkpoint.folder = folder_;
  fit(nn::Linear(1, 1), training, training, options);
  options.resume = std::make_shared<TrainingState>(load_checkpoint(latest_checkpoint(folder_)));
  const auto message = [&](const FitOptions& changed, const data::Dataset& samples,
                           const nn::Layer& model) -> std::string {
    try {
      fit(model, samples, samples, changed);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  FitOptions other = options;
  other.seed = 5;
  EXPECT_EQ(
      message(other, training, nn::Linear(1, 1)),
      "[resume] seed must be that of the checkpoint, 3. Received: 5. Try: the configuration and the data that the run "
      "was started with.");
  EXPECT_NE(message(options, linear_data(24, 1, 1), nn::Linear(1, 1)).find("the number of training samples must be"),
            std::string::npos);
  EXPECT_NE(
      message(options, training, nn::Sequential(nn::Linear(1, 1))).find("tensor '0.weight' must be in the checkpoint"),
      std::string::npos);
  other = options;
  other.optimizer = optim::Adam(0.1);
  EXPECT_EQ(
      message(other, training, nn::Linear(1, 1)),
      "[resume] optimizer must be that of the checkpoint, which keeps no exp_avg.bias. Received: one that does. Try: "
      "the optimizer that the run was started with, with the same options.");
}

TEST_F(FitInFolder, AFolderWithoutCheckpointsHasNoneToLoad) {
  std::filesystem::create_directories(folder_);
  try {
    load_checkpoint(latest_checkpoint(folder_));
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "[checkpoint] there must be a checkpoint to load. Received: an empty path, which latest_checkpoint() "
                 "gives for a folder without any. Try: a folder that a training wrote checkpoints to.");
  }
}

TEST_F(FitInFolder, UndefinedArraysAreNotSaved) {
  Tree<Array> params = nn::Linear(1, 1).init(0);
  params["bias"] = Array();
  try {
    save_model(folder_ / "model.safetensors", params);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "[save_model] params must be arrays that are defined. Received: bias = Array(), which has no "
                 "memory.");
  }
}

}  // namespace
}  // namespace hotloop::train
