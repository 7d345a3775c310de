// Fitting: the loop around one compiled step, predictions, and the simple models that results are compared with.
//
//   train::FitResult run = train::fit(model, samples.train(), samples.validation(), {.batch_size = 256, .epochs = 40});
//   Array y = train::predict(model, run.params, samples.test());
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hotloop/checkpoint.h"
#include "hotloop/data.h"
#include "hotloop/jit.h"
#include "hotloop/losses.h"
#include "hotloop/metrics.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"
#include "hotloop/tree.h"

namespace hotloop::train {

using metrics::Metric;

// Where a fit stands, told after each call of the step and after each epoch's validation.
struct Progress {
  std::int64_t epoch = 0, num_epochs = 0;  // epoch counts from 1
  std::int64_t step = 0, num_steps = 0;    // within the epoch, from 1
  bool epoch_done = false;                 // validated; what follows is there
  double elapsed_s = 0;                    // since the first step of this process
  std::int64_t steps_here = 0;             // that this process has done, which are fewer than all after a resume
  std::int64_t samples_here = 0;
  double training_s = 0;  // of elapsed_s: waiting for batches and taking steps, without validations and compiling
  const EpochRecord* epoch_record = nullptr;
  const Tree<Array>* params = nullptr;  // as they are validated, predicted with and kept
  bool best = false;                    // of all epochs so far
};

// Ends a fit whose validation no longer becomes better.
struct EarlyStopping {
  std::int64_t patience =
      0;  // epochs in a row that may not be better than the best by more than min_delta; 0: never ends
  double min_delta = 0;
};

struct FitOptions {
  losses::Loss loss = losses::MSE();
  optim::Optimizer optimizer = optim::Adam();
  std::int64_t batch_size = 32;
  std::int64_t epochs = 10;
  std::uint64_t seed = 0;  // of the initial parameters, the order of the samples and the steps' keys
  // Of the initial parameters and the order of the samples; keys are Philox's. Torch: the order is a torch.randperm each epoch,
  // drawn after the parameters, also where other parameters are given in their place.
  nn::Generator generator = nn::Generator::Philox;
  nn::Init init = nn::Init::Torch;
  bool shuffle = true;
  Metric metric = metrics::MAE();  // of the validation; the best epoch is kept
  // Recorded beside it, of the same predictions (EpochRecord::metrics). They decide nothing, and may be NaN. Names must differ.
  std::vector<Metric> further_metrics = {};
  // False: the metric is NaN and the last epoch is kept; no validation sample is computed (pass the training samples again).
  bool validate = true;
  EarlyStopping early_stopping = {};
  Array class_weights = {};  // (C), f32 or f64, of a loss over classes
  // Whole batches that one call of the compiled program takes. The results are the same but for rounding: a loop of steps may add rows up in
  // another order.
  std::int64_t steps_per_call = 1;
  bool prefetch = true;         // a thread gathers the next batches while the steps compute; same results either way
  CompileOptions compile = {};  // batch_axes are filled in, flush_denormals in training where it is left out
  CheckpointOptions checkpoint = {};
  // Where to go on from, as load_checkpoint() gives it; null: from fresh parameters. The results are then those of a fit that was never
  // interrupted.
  std::shared_ptr<const TrainingState> resume = nullptr;
  // Told of each call and epoch. What it throws ends the fit; the newest state that is whole is then still written as a checkpoint.
  std::function<void(const Progress&)> on_progress = {};
  // Ends the fit after the call under way when it becomes true. May be set by a signal handler or by on_progress.
  const std::atomic<bool>* stop = nullptr;
  // Asked when request_cancel() has ended a call of a program in the middle. True: clear_cancel() was called, and that call is made
  // again, with the same result. Without it, or false: the fit ends by throwing Cancelled, after writing a checkpoint as above.
  std::function<bool()> on_cancelled = {};
};

// Where the time of a fit went, in this process.
struct FitTimes {
  double compile_s = 0;  // all executables
  double gather_s = 0;   // waiting for batches: with prefetch, what computing does not hide
  double steps_s = 0;    // forward, backward, optimiser
  double validation_s = 0;
  std::int64_t num_steps = 0;
};

// The first tensor of a training that was not finite.
struct NonFinite {
  std::int64_t epoch = 0, step = 0;  // both from 1
  std::string tensor;                // "the gradient of 0.weight_hh_l0, f32[12,3]: 7 of its 36 numbers are not finite"
};

struct FitResult {
  enum class Status { Finished, StoppedEarly, NonFiniteLoss, Stopped };
  Status status = Status::Finished;
  std::string message;  // what happened and what may help, when not Finished
  Tree<Array> params;   // of the best epoch; the initial ones when no epoch ended with a finite metric
  Tree<Array> buffers;  // likewise
  std::int64_t best_epoch = 0;
  double best_validation = 0;
  std::vector<EpochRecord> history;
  FitTimes times;
  NonFinite non_finite;                                  // of Status::NonFiniteLoss
  TrainingState state;                                   // after the last good step
  std::string step_explanation, validation_explanation;  // Executable::explain()
};

const char* name_of(FitResult::Status status);  // "stopped_early"

// Trains from fresh parameters, or from where `resume` stands. The whole step, forward, backward and optimiser, is one executable, also for
// the last, shorter batch. Lengths and sample weights are used if the datasets have them. The order of the samples is a pure function
// of seed, generator and epoch. UserError for options or shapes that do not fit, for a state to resume from that belongs to
// another training, and for a checkpoint that cannot be written; a loss that is not finite is an outcome, not an error.
FitResult fit(const nn::Layer& model, const data::Dataset& training, const data::Dataset& validation,
              const FitOptions& options);

// The model compiled for batches of one size, for calls with different parameters and data.
class Predictor {
 public:
  // For parameters and buffers of these types, and batches of `x` (one type or a tree of several, batch axis first) with lengths or
  // without.
  Predictor(const nn::Layer& model, const Tree<Array>& params, const Tree<Array>& buffers, const Tree<ValueType>& x,
            bool lengths, CompileOptions options = {});
  Predictor(const nn::Layer& model, const Tree<Array>& params, const Tree<Array>& buffers, const data::Dataset& samples,
            std::int64_t batch_size, CompileOptions options = {});

  // [samples, output shape...]. UserError for other types than at construction.
  Array operator()(const Tree<Array>& params, const Tree<Array>& buffers, const data::Dataset& samples) const;
  // [rows, output shape...] for the first `rows` of a batch x, and of its lengths (i32 (B); undefined without).
  Array batch(const Tree<Array>& params, const Tree<Array>& buffers, const Tree<Array>& x, const Array& lengths,
              std::int64_t rows) const;

  std::int64_t batch_size() const;
  ValueType output_type() const;  // of a batch
  std::string explain() const { return executable_.explain(); }

 private:
  void check(const Tree<Array>& params, const Tree<Array>& buffers, const Tree<ValueType>& x, bool lengths) const;

  std::vector<std::string> input_names_;
  bool lengths_;
  Executable executable_;
};
Array predict(const nn::Layer& model, const Tree<Array>& params, const data::Dataset& samples,
              std::int64_t batch_size = 256, const CompileOptions& options = {}, const Tree<Array>& buffers = {});

// What a metric compares with targets (samples, ..., n) of a model's outputs: for a loss with a distribution, outputs
// (samples, ..., n * num_outputs) of it, the statistic that stands for the target; else, and for a metric that is of a loss, the outputs.
Array metric_predictions(const Metric& metric, const losses::Loss& loss, const Array& outputs);
// The metric of predictions [samples, ...] for the dataset's targets, weighted as the dataset says; samples of weight 0 may be anything.
// Float targets and their predictions are first mapped to scale * value + offset. The numbers of a sample are compared with its target as a
// whole; of sequences, predictions (samples, time, outputs) for targets (time, ...), valid step by valid step.
double evaluate_metric(const Metric& metric, const Array& predictions, const data::Dataset& samples, double scale = 1,
                       double offset = 0);

// A permutation of 0..n-1: Fisher-Yates with Philox4x32-10, a pure function of its arguments.
std::vector<std::int64_t> shuffled(std::int64_t n, std::uint64_t seed, std::uint64_t epoch);

// Linear least squares on the flattened inputs with penalty lambda |w|^2 and an intercept that has none: w = (A'A + lambda I)^-1 A'y for each
// number y of a target, A and y less their means over the training samples, by the normal equations and a Cholesky factorisation, in double.
struct Ridge {
  double lambda = 0;
  double validation_mae = 0;            // in the units of the dataset's targets
  std::vector<double> weights = {};     // [size of a target, size of an input]
  std::vector<double> intercepts = {};  // [size of a target]; none: 0

  // [samples, size of a target]
  std::vector<double> predict(const data::Dataset& samples) const;
};
// Fits on `training` for each of `lambdas` and keeps the one with the least mean absolute error on `validation`. Of one input alone.
Ridge fit_ridge(const data::Dataset& training, const data::Dataset& validation, std::span<const double> lambdas);

}  // namespace hotloop::train

namespace hotloop {
using train::fit;
}  // namespace hotloop
