// The training loop on the oracle: order of the samples, last batch, best epoch, bad losses, stopping.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "fit_states.h"
#include "hotloop/hotloop.h"

namespace hotloop::train {
namespace {

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
  EXPECT_EQ(evaluate_metric(metrics::MAE(), predicted, validation), run.best_validation);
}

// In training each row sees a little of another one, which no program for any number of rows can do.
class MirrorModule : public nn::Module {
 public:
  Tree<Array> init(const nn::Seed&, DType, nn::Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value x, nn::Context& context) const override {
    return context.is_training() ? x + 0.001 * reverse(x, {0}) : x;
  }
};

// The rows of an embedding's gradient are summed, for any number of them; a model that couples the rows of a batch is compiled for full
// batches and for the shorter last one.
TEST(Fit, AnEmbeddingWithAPartialLastBatch) {
  std::vector<double> ids, y;
  for (int i = 0; i < 44; ++i) {
    ids.push_back(i * 7 % 5);
    y.push_back(ids.back() * ids.back() - 3);
  }
  const data::ArrayDataset samples(Array::from(ids, {44, 1}), Array::from(y, {44, 1}));
  const nn::Sequential plain(nn::Embedding(5, 4), nn::Flatten(), nn::Linear(4, 1));
  const nn::Sequential coupled(nn::Embedding(5, 4), nn::Flatten(), nn::Layer(MirrorModule()), nn::Linear(4, 1));
  for (const nn::Sequential& model : {plain, coupled})
    for (const char* backend : {"interp", "llvm"}) {
      FitOptions options = options_of(60);
      options.optimizer = optim::Adam(0.1);
      options.compile.backend = backend;
      const FitResult run = fit(model, samples, samples, options);
      EXPECT_EQ(run.status, FitResult::Status::Finished) << run.message;
      EXPECT_LT(run.best_validation, 0.2) << backend;
    }
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
      training.gather(std::span(&order[i], 1), {.inputs = &x, .targets = &y});
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

// Further metrics of the same predictions are recorded, by name, and decide nothing.
TEST(Fit, MetricsBesideTheOneThatChooses) {
  const auto training = linear_data(37, 2, 1), validation = linear_data(11, 2, 2);
  const nn::Linear model(2, 1);
  FitOptions options = options_of(4);
  const FitResult plain = fit(model, training, validation, options);
  EXPECT_EQ(plain.history[0].metrics,
            (std::vector<std::pair<std::string, double>>{{"mae", plain.history[0].validation}}));
  options.further_metrics = {metrics::RMSE(), metrics::MSE().named("squares")};
  std::vector<EpochRecord> told;
  options.on_progress = [&](const Progress& p) {
    if (p.epoch_done) told.push_back(*p.epoch_record);
  };
  const FitResult run = fit(model, training, validation, options);
  EXPECT_EQ(run.best_epoch, plain.best_epoch);
  ASSERT_EQ(told.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const EpochRecord& record = run.history[i];
    EXPECT_EQ(record.validation, plain.history[i].validation);
    ASSERT_EQ(record.metrics.size(), 3u);
    EXPECT_EQ(record.metrics[0], std::pair(std::string("mae"), record.validation));
    EXPECT_EQ(record.metrics[1].first, "rmse");
    EXPECT_EQ(record.metrics[2].first, "squares");
    EXPECT_EQ(record.metrics[1].second, std::sqrt(record.metrics[2].second));
    EXPECT_EQ(told[i].metrics, record.metrics);
  }
  CompileOptions interp;
  interp.backend = "interp";
  const std::size_t best = static_cast<std::size_t>(run.best_epoch) - 1;
  EXPECT_EQ(run.history[best].metrics[1].second,
            evaluate_metric(metrics::RMSE(), predict(model, run.params, validation, 4, interp), validation));
  options.further_metrics = {metrics::MAE()};
  try {
    fit(model, training, validation, options);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "[fit] each metric must have a name of its own. Received: two of the name 'mae'. Try: "
                 "metric.named(\"...\").");
  }
}

TEST(Fit, WithoutAValidationTheLastEpochIsKept) {
  const auto training = linear_data(37, 2, 1), other = linear_data(11, 2, 2);
  FitOptions options = options_of(3);
  options.validate = false;
  const nn::Linear model(2, 1);
  const FitResult run = fit(model, training, training, options);
  EXPECT_EQ(run.best_epoch, 3);
  EXPECT_TRUE(std::isnan(run.best_validation) && std::isnan(run.history[2].validation));
  EXPECT_EQ(run.params["weight"].at(1), run.state.params["weight"].at(1));
  EXPECT_EQ(run.params["weight"].at(1), fit(model, training, other, options).params["weight"].at(1));
  // A fit that goes on with a validation keeps its first epoch, there being no better one.
  FitOptions more = options_of(4);
  more.resume = std::make_shared<TrainingState>(run.state);
  EXPECT_EQ(fit(model, training, other, more).best_epoch, 4);
  options.early_stopping.patience = 2;
  EXPECT_THROW(fit(model, training, training, options), UserError);
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
  // Another remedy where the data are not finite.
  const data::ArrayDataset missing(Array::from<double>({1, std::nan("")}, {2, 1}), Array::from<double>({1, 2}, {2, 1}));
  const std::string message = fit(nn::Linear(1, 1), missing, missing, options).message;
  EXPECT_TRUE(message.ends_with("Try: fill what is missing in the data, or leave those samples out.")) << message;
}

TEST(Fit, StopsAfterTheStepUnderWay) {
  const auto training = linear_data(64, 1, 8);
  std::atomic<bool> stop{false};
  FitOptions options = options_of(100);
  options.stop = &stop;
  std::int64_t told = 0;
  options.on_progress = [&](const Progress& p) {
    if (!p.epoch_done) ++told;
    EXPECT_GT(p.training_s, 0);
    EXPECT_LT(p.training_s, p.elapsed_s);
    if (p.epoch == 2 && p.step == 3) stop = true;
  };
  const FitResult run = fit(nn::Linear(1, 1), training, training, options);
  EXPECT_EQ(run.status, FitResult::Status::Stopped);
  EXPECT_EQ(run.best_epoch, 1);
  EXPECT_EQ(run.times.num_steps, 8 + 3);
  EXPECT_EQ(told, 11);
  EXPECT_EQ(run.state.epoch, 2);
  EXPECT_EQ(run.state.step, 3);
}

// ---- what must not change a bit -------------------------------------------------------------------------------------

TEST(Fit, StepsPerCallAndPrefetchChangeNoBit) {
  const auto training = linear_data(37, 2, 1), validation = linear_data(11, 2, 2);  // 4 whole batches and one of 5
  FitOptions options = options_of(3);
  options.optimizer = optim::Adam(0.05);
  const std::string expected = bits(fit(nn::Linear(2, 1), training, validation, options).state);
  for (const std::int64_t steps : {2, 3, 4, 100})
    for (const bool prefetch : {false, true}) {
      options.steps_per_call = steps;
      options.prefetch = prefetch;
      EXPECT_EQ(bits(fit(nn::Linear(2, 1), training, validation, options).state), expected) << steps << prefetch;
    }
}

// The same compiled, with a loop over time inside the loop over steps, and any number of threads.
TEST(Fit, StepsPerCallAndThreadsChangeNoBitCompiled) {
  std::mt19937_64 rng(3);
  std::normal_distribution<float> normal;
  constexpr std::int64_t n = 70, time = 5, features = 3;
  std::vector<float> x(static_cast<std::size_t>(n * time * features)), y(static_cast<std::size_t>(n));
  for (std::vector<float>* values : {&x, &y})
    for (float& v : *values) v = normal(rng);
  const data::ArrayDataset samples(Array::from(x, {n, time, features}), Array::from(y, {n, 1}));
  const nn::Sequential model(nn::LSTM(features, 9), nn::Last(), nn::Linear(9, 1));
  FitOptions options{.optimizer = optim::Adam(0.01), .batch_size = 16, .epochs = 2};
  const std::string expected = bits(fit(model, samples, samples, options).state);
  for (const std::int64_t steps : {1, 2, 4})
    for (const int threads : {1, 2}) {
      options.steps_per_call = steps;
      options.compile.threads = threads;
      EXPECT_EQ(bits(fit(model, samples, samples, options).state), expected) << steps << " " << threads;
    }
}

TEST(Fit, StopsEarlyWithTheBestEpoch) {
  const auto training = linear_data(16, 1, 6);
  const data::ArrayDataset validation(Array::from(std::vector<double>{1, -1}, {2, 1}),
                                      Array::from(std::vector<double>{-100, 100}, {2, 1}));
  FitOptions options = options_of(50);
  options.early_stopping.patience = 4;
  const FitResult run = fit(nn::Linear(1, 1), training, validation, options);
  EXPECT_EQ(run.status, FitResult::Status::StoppedEarly);
  EXPECT_EQ(run.history.size(), 1u + 4);
  EXPECT_EQ(run.best_epoch, 1);
}

// Rows 8..15 of the inputs are so large that the square of the prediction's error is not a float, so the loss of that batch is
// what first becomes infinite; nothing before it is.
TEST(Fit, NamesTheFirstTensorThatIsNotFinite) {
  std::vector<float> x(24, 1), y(24, 1);
  std::fill(x.begin() + 8, x.begin() + 16, 1e30f);
  const data::ArrayDataset training(Array::from(x, {24, 1}), Array::from(y, {24, 1}));
  FitOptions options = options_of(2);
  options.shuffle = false;
  FitResult run = fit(nn::Linear(1, 1), training, training, options);
  EXPECT_EQ(run.status, FitResult::Status::NonFiniteLoss);
  EXPECT_EQ(run.non_finite.epoch, 1);
  EXPECT_EQ(run.non_finite.step, 2);
  EXPECT_EQ(run.non_finite.tensor, "the loss, f32[]: 1 of its 1 numbers are not finite");
  EXPECT_NE(
      run.message.find("The loss was not finite at step 2 of epoch 1. First of all tensors, at step 2 of epoch 1"),
      std::string::npos)
      << run.message;

  // A NaN among the inputs is found as such, and a layer's output before the loss.
  x[3] = std::numeric_limits<float>::quiet_NaN();
  const data::ArrayDataset with_nan(Array::from(x, {24, 1}), Array::from(y, {24, 1}));
  run = fit(nn::Linear(1, 1), with_nan, training, options);
  EXPECT_EQ(run.non_finite.step, 1);
  EXPECT_EQ(run.non_finite.tensor, "the inputs of the batch, f32[8,1]: 1 of its 8 numbers are not finite");
  x[3] = 3e38f;
  const data::ArrayDataset overflowing(Array::from(x, {24, 1}), Array::from(y, {24, 1}));
  run = fit(nn::Sequential(nn::Linear(1, 4), nn::Linear(4, 1)), overflowing, training, options);
  EXPECT_TRUE(run.non_finite.tensor.starts_with("the output of layer ") ||
              run.non_finite.tensor.starts_with("the loss"))
      << run.non_finite.tensor;
}

// A step whose loss is finite can leave parameters behind that are not; that step is the one to name.
TEST(Fit, NamesAnEarlierStepThanThatOfTheLoss) {
  std::vector<float> x(16, 1), y(16, 1);
  y[3] = 1e19f;  // its square is a float, 8 * 1e19^2 / 8 too; learning_rate * gradient is not
  const data::ArrayDataset training(Array::from(x, {16, 1}), Array::from(y, {16, 1}));
  FitOptions options = options_of(2);
  options.shuffle = false;
  options.optimizer = optim::SGD(1e25);
  const FitResult run = fit(nn::Linear(1, 1), training, training, options);
  EXPECT_EQ(run.status, FitResult::Status::NonFiniteLoss);
  EXPECT_EQ(run.non_finite.step, 1);
  EXPECT_TRUE(run.non_finite.tensor.starts_with("parameter ")) << run.non_finite.tensor;
  EXPECT_NE(run.message.find("The loss was not finite at step 2 of epoch 1."), std::string::npos) << run.message;
  EXPECT_EQ(run.state.num_steps, 0);
}

// Slow enough for a thread to gather ahead, which must not show.
TEST(Fit, GatheringAheadChangesNoBit) {
  class Slow : public data::ArrayDataset {
   public:
    using ArrayDataset::ArrayDataset;
    void gather(std::span<const std::int64_t> samples, const data::Batch& batch) const override {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::thread::id here = std::this_thread::get_id();
      if (first == std::thread::id()) first = here;
      elsewhere = elsewhere || here != first;
      ArrayDataset::gather(samples, batch);
    }
    mutable std::thread::id first;
    mutable std::atomic<bool> elsewhere{false};
  };
  const auto fast = linear_data(37, 2, 1), validation = linear_data(11, 2, 2);
  std::vector<std::int64_t> all(37);
  std::iota(all.begin(), all.end(), std::int64_t{0});
  Array x = Array::zeros(DType::F64, {37, 2}), y = Array::zeros(DType::F64, {37, 1});
  fast.gather(all, {.inputs = x.raw(), .targets = y.raw()});
  const Slow slow(x, y);
  FitOptions options = options_of(4);
  options.steps_per_call = 2;
  const std::string expected = bits(fit(nn::Linear(2, 1), fast, validation, options).state);
  EXPECT_EQ(bits(fit(nn::Linear(2, 1), slow, validation, options).state), expected);
  EXPECT_TRUE(slow.elsewhere);
  // Ending early joins the thread, whatever it is doing.
  std::atomic<bool> stop{false};
  options.stop = &stop;
  options.on_progress = [&](const Progress& p) { stop = p.steps_here > 9; };
  EXPECT_EQ(fit(nn::Linear(2, 1), slow, validation, options).status, FitResult::Status::Stopped);
}

// gather() throws what it likes, from whatever thread it is called.
TEST(Fit, ErrorsOfTheDataArriveAtTheCaller) {
  class Broken : public data::ArrayDataset {
   public:
    using ArrayDataset::ArrayDataset;
    void gather(std::span<const std::int64_t> samples, const data::Batch& batch) const override {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (++calls > fine_calls) throw UserError("csv", "row 13 must be a number");
      ArrayDataset::gather(samples, batch);
    }
    int fine_calls = 0;
    mutable std::atomic<int> calls{0};
  };
  const auto validation = linear_data(3, 1, 1);
  FitOptions options = options_of(4);
  for (const int fine_calls : {0, 2, 9})  // in the first blocks, and when a thread has taken over
    for (const bool prefetch : {false, true}) {
      Broken training(Array::zeros(DType::F64, {32, 1}), Array::zeros(DType::F64, {32, 1}));
      training.fine_calls = fine_calls;
      options.prefetch = prefetch;
      EXPECT_THROW(fit(nn::Linear(1, 1), training, validation, options), UserError);
    }
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
