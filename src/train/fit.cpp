#include "hotloop/fit.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "hotloop/error.h"
#include "hotloop/train.h"

namespace hotloop::train {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Adds the time until the end of the scope to a total.
class Stopwatch {
 public:
  explicit Stopwatch(double& total_s) : total_s_(total_s), start_(Clock::now()) {}
  ~Stopwatch() { total_s_ += seconds_since(start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_s_;
  Clock::time_point start_;
};

void check(const data::Dataset& training, const data::Dataset& validation, const FitOptions& options) {
  if (options.batch_size < 1) throw UserError("fit", "batch_size must be positive", std::to_string(options.batch_size));
  if (options.epochs < 1) throw UserError("fit", "epochs must be positive", std::to_string(options.epochs));
  if (training.size() < 1 || validation.size() < 1)
    throw UserError("fit", "training and validation must both hold samples",
                    std::to_string(training.size()) + " and " + std::to_string(validation.size()) + " samples");
  if (training.input_shape() != validation.input_shape() || training.target_shape() != validation.target_shape() ||
      training.dtype() != validation.dtype())
    throw UserError("fit", "training and validation samples must have the same shapes and dtype",
                    ValueType{training.dtype(), training.input_shape()}.str() + " and " +
                        ValueType{validation.dtype(), validation.input_shape()}.str());
}

// Parameters and optimiser state twice: a step reads one copy and writes the other.
class StepArrays {
 public:
  StepArrays(const Tree<Array>& params, const Tree<Array>& state, Array x, Array y)
      : x_(std::move(x)), y_(std::move(y)), loss_(Array::zeros(x_.dtype(), {})) {
    for (std::vector<Array>* copy : {&current_, &next_}) {
      for (const Array& leaf : params.flatten()) copy->push_back(leaf.clone());
      for (const Array& leaf : state.flatten()) copy->push_back(leaf.clone());
    }
    num_params_ = params.num_leaves();
  }

  double run(const Executable& step, std::int64_t rows) {
    inputs_.clear();
    outputs_.clear();
    for (Array& a : current_) inputs_.push_back(a.raw());
    for (Array& a : next_) outputs_.push_back(a.raw());
    inputs_.push_back(x_.raw());
    inputs_.push_back(y_.raw());
    outputs_.push_back(loss_.raw());
    step.run_raw(inputs_.data(), outputs_.data(), rows);
    std::swap(current_, next_);
    return loss_.at(0);
  }

  Array& x() { return x_; }
  Array& y() { return y_; }
  std::span<const Array> params() const { return std::span(current_).first(num_params_); }

 private:
  std::vector<Array> current_, next_;
  Array x_, y_, loss_;
  std::size_t num_params_ = 0;
  std::vector<void*> inputs_, outputs_;
};

std::string non_finite_message(std::int64_t epoch, std::int64_t step, std::int64_t kept_epoch) {
  std::string text =
      "The loss was not finite at step " + std::to_string(step) + " of epoch " + std::to_string(epoch) + ". ";
  text += kept_epoch > 0 ? "The parameters of epoch " + std::to_string(kept_epoch) + " are kept."
                         : "No epoch was completed: the parameters are the initial ones.";
  return text + " Try: a smaller learning_rate, or look for extreme values in the inputs.";
}

}  // namespace

Metric Metric::mae() {
  return {"mae", [](double prediction, double target) { return std::abs(prediction - target); }};
}
Metric Metric::mse() {
  return {"mse", [](double prediction, double target) { return (prediction - target) * (prediction - target); }};
}

double evaluate_metric(const Metric& metric, const Array& predictions, const data::Dataset& samples, double scale,
                       double offset) {
  const std::int64_t width = samples.target_shape().size();
  if (predictions.size() != samples.size() * width || predictions.size() == 0)
    throw UserError("metric", "there must be one prediction a target, and at least one",
                    predictions.type().str() + " for " + std::to_string(samples.size()) + " targets of shape " +
                        samples.target_shape().str());
  Array target(samples.dtype(), samples.target_shape());
  double sum = 0;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    samples.gather(std::span(&i, 1), nullptr, target.raw());
    for (std::int64_t k = 0; k < width; ++k)
      sum += metric.error(predictions.at(i * width + k) * scale + offset, target.at(k) * scale + offset);
  }
  return sum / static_cast<double>(predictions.size());
}

FitResult fit(const nn::Layer& model, const data::Dataset& training, const data::Dataset& validation,
              const FitOptions& options) {
  check(training, validation, options);
  FitResult result;
  const DType dtype = training.dtype();
  const std::int64_t batch = std::min(options.batch_size, training.size());
  const ValueType x_type{dtype, training.input_shape().with_inserted(0, batch)};
  const ValueType y_type{dtype, training.target_shape().with_inserted(0, batch)};

  const Tree<Array> initial = model.init(options.seed, dtype, options.init);
  const Tree<Array> state = options.optimizer.init(initial);
  const Clock::time_point compile_start = Clock::now();
  const Step step_definition = train_step(model, options.loss, options.optimizer, initial, state, x_type, y_type);
  CompileOptions compile_options = options.compile;
  compile_options.batch_axes = step_definition.batch_axes;
  const Executable step = compile(step_definition.graph(), compile_options);
  const Predictor predictor(model, initial, validation, batch, options.compile);
  result.times.compile_s = seconds_since(compile_start);

  StepArrays arrays(initial, state, Array(dtype, x_type.shape), Array(dtype, y_type.shape));
  const auto current_params = [&] {
    std::vector<Array> leaves;
    for (const Array& leaf : arrays.params()) leaves.push_back(leaf.clone());
    return initial.unflatten(leaves);
  };
  result.params = initial;
  result.best_validation = std::numeric_limits<double>::infinity();
  const auto end_early = [&](FitResult::Status status, std::string message) {
    result.status = status;
    result.message = std::move(message);
  };

  const std::int64_t num_steps = (training.size() + batch - 1) / batch;
  const Clock::time_point start = Clock::now();
  for (std::int64_t epoch = 1; epoch <= options.epochs && result.status == FitResult::Status::Finished; ++epoch) {
    const Clock::time_point epoch_start = Clock::now();
    std::vector<std::int64_t> order;
    {
      const Stopwatch watch(result.times.gather_s);
      order = shuffled(training.size(), nn::fold_in(options.seed, "shuffle"), static_cast<std::uint64_t>(epoch));
      if (!options.shuffle) std::ranges::sort(order);
    }
    EpochRecord record{.epoch = epoch};
    Progress progress{.epoch = epoch, .num_epochs = options.epochs, .num_steps = num_steps};
    for (std::int64_t s = 0; s < num_steps && result.status == FitResult::Status::Finished; ++s) {
      const std::int64_t rows = std::min(batch, training.size() - s * batch);
      {
        const Stopwatch watch(result.times.gather_s);
        const auto samples = std::span<const std::int64_t>(order).subspan(static_cast<std::size_t>(s * batch),
                                                                          static_cast<std::size_t>(rows));
        training.gather(samples, arrays.x().raw(), arrays.y().raw());
      }
      double loss = 0;
      {
        const Stopwatch watch(result.times.steps_s);
        loss = arrays.run(step, rows);
      }
      ++result.times.num_steps;
      if (!std::isfinite(loss))
        end_early(FitResult::Status::NonFiniteLoss, non_finite_message(epoch, s + 1, result.best_epoch));
      else if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed))
        end_early(FitResult::Status::Stopped, "Stopped in epoch " + std::to_string(epoch) + ".");
      record.train_loss += loss * static_cast<double>(rows) / static_cast<double>(training.size());
      progress.step = s + 1;
      progress.elapsed_s = seconds_since(start);
      if (options.on_progress) options.on_progress(progress);
    }
    if (result.status != FitResult::Status::Finished) break;

    Tree<Array> params = current_params();
    {
      const Stopwatch watch(result.times.validation_s);
      record.validation = evaluate_metric(options.metric, predictor(params, validation), validation);
    }
    record.seconds = seconds_since(epoch_start);
    result.history.push_back(record);
    if (record.validation < result.best_validation) {
      result.best_validation = record.validation;
      result.best_epoch = epoch;
      result.params = std::move(params);
    }
    progress.epoch_done = true;
    progress.epoch_record = &result.history.back();
    progress.elapsed_s = seconds_since(start);
    if (options.on_progress) options.on_progress(progress);
    // The last step's loss was finite, but the parameters it made need not be.
    if (!std::isfinite(record.validation))
      end_early(FitResult::Status::NonFiniteLoss, non_finite_message(epoch, num_steps, result.best_epoch));
  }
  result.step_explanation = step.explain();
  result.validation_explanation = predictor.explain();
  return result;
}

}  // namespace hotloop::train
