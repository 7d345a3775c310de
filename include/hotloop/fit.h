// Fitting: the loop around one compiled step, predictions, and the simple models that results are compared with.
//
//   train::FitResult run = train::fit(model, windows.train(), windows.validation(), {.batch_size = 256, .epochs = 40});
//   Array y = train::predict(model, run.params, windows.test());
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hotloop/data.h"
#include "hotloop/jit.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"
#include "hotloop/tree.h"

namespace hotloop::train {

// Error of one number of a prediction; averaged over all numbers of all samples, in double.
struct Metric {
  std::string name;
  double (*error)(double prediction, double target);

  static Metric mae();  // |prediction - target|
  static Metric mse();  // (prediction - target)^2
};

// Where a fit stands, told after each step and after each epoch's validation.
struct Progress {
  std::int64_t epoch = 0, num_epochs = 0;  // epoch counts from 1
  std::int64_t step = 0, num_steps = 0;    // within the epoch, from 1
  bool epoch_done = false;                 // validated; epoch_record is there
  double elapsed_s = 0;                    // since the first step
  const struct EpochRecord* epoch_record = nullptr;
};

struct EpochRecord {
  std::int64_t epoch = 0;  // from 1
  double train_loss = 0;   // mean over the epoch's samples, each under the parameters of its step
  double validation = 0;   // the metric, under the parameters at the end of the epoch
  double seconds = 0;      // steps and validation
};

struct FitOptions {
  losses::Loss loss = losses::MSE();
  optim::Optimizer optimizer = optim::Adam();
  std::int64_t batch_size = 32;
  std::int64_t epochs = 10;
  std::uint64_t seed = 0;  // of the initial parameters and of the order of the samples
  nn::Init init = nn::Init::Torch;
  bool shuffle = true;
  Metric metric = Metric::mae();  // of the validation; the epoch where it is least is kept
  CompileOptions compile = {};    // batch_axes are filled in
  std::function<void(const Progress&)> on_progress = {};
  const std::atomic<bool>* stop = nullptr;  // ends the fit after the step under way when it becomes true
};

// Where the time of a fit went.
struct FitTimes {
  double compile_s = 0;  // both executables
  double gather_s = 0;   // copying batches
  double steps_s = 0;    // forward, backward, optimiser
  double validation_s = 0;
  std::int64_t num_steps = 0;
};

struct FitResult {
  enum class Status { Finished, NonFiniteLoss, Stopped };
  Status status = Status::Finished;
  std::string message;  // what happened and what may help, when not Finished
  Tree<Array> params;   // of the best epoch; the initial ones when no epoch ended with a finite metric
  std::int64_t best_epoch = 0;
  double best_validation = 0;
  std::vector<EpochRecord> history;
  FitTimes times;
  std::string step_explanation, validation_explanation;  // Executable::explain()
};

// Trains from fresh parameters. The whole step, forward, backward and optimiser, is one executable, also for the last, shorter
// batch. The order of the samples is a pure function of the seed and the epoch. UserError for options or shapes that
// do not fit; a loss that is not finite is an outcome, not an error.
FitResult fit(const nn::Layer& model, const data::Dataset& training, const data::Dataset& validation,
              const FitOptions& options);

// The model compiled for batches of one size, for calls with different parameters and datasets.
class Predictor {
 public:
  Predictor(const nn::Layer& model, const Tree<Array>& params, const data::Dataset& samples, std::int64_t batch_size,
            CompileOptions options = {});
  // [samples, output shape...] for parameters and samples of the types given at construction.
  Array operator()(const Tree<Array>& params, const data::Dataset& samples) const;
  std::string explain() const { return executable_.explain(); }

 private:
  std::int64_t batch_size_;
  Executable executable_;
};
Array predict(const nn::Layer& model, const Tree<Array>& params, const data::Dataset& samples,
              std::int64_t batch_size = 256, const CompileOptions& options = {});

// Mean of the metric between predictions and the dataset's targets, each first mapped to scale * value + offset.
double evaluate_metric(const Metric& metric, const Array& predictions, const data::Dataset& samples, double scale = 1,
                       double offset = 0);

// A permutation of 0..n-1: Fisher-Yates with Philox4x32-10, a pure function of its arguments.
std::vector<std::int64_t> shuffled(std::int64_t n, std::uint64_t seed, std::uint64_t epoch);

// Linear least squares on the flattened inputs with penalty lambda |w|^2 and no intercept (the data are standardised):
// w = (A'A + lambda I)^-1 A'y by the normal equations and a Cholesky factorisation, in double.
struct Ridge {
  double lambda = 0;
  double validation_mae = 0;    // in the units of the dataset's targets
  std::vector<double> weights;  // [size of one input]

  // One number a sample.
  std::vector<double> predict(const data::Dataset& samples) const;
};
// Fits on `training` for each of `lambdas` and keeps the one with the least mean absolute error on `validation`.
// The targets must be one number a sample.
Ridge fit_ridge(const data::Dataset& training, const data::Dataset& validation, std::span<const double> lambdas);

}  // namespace hotloop::train

namespace hotloop {
using train::fit;
}  // namespace hotloop
