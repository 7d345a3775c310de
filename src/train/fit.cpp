#include "hotloop/fit.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "core/index.h"
#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/train.h"
#include "nn/torch_generator.h"
#include "train/batches.h"
#include "train/checkpoint_writer.h"
#include "train/class_labels.h"
#include "train/diagnose.h"
#include "train/output_statistics.h"
#include "train/step_runner.h"

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

void check_positive(const char* name, std::int64_t value) {
  if (value < 1) throw UserError("fit", std::string(name) + " must be positive", std::to_string(value));
}

void check_not_negative(const char* name, double value) {
  if (!(value >= 0)) throw UserError("fit", std::string(name) + " must not be negative", print_number(value));
}

void check(const data::Dataset& training, const data::Dataset& validation, const FitOptions& options) {
  check_positive("batch_size", options.batch_size);
  check_positive("epochs", options.epochs);
  check_positive("steps_per_call", options.steps_per_call);
  check_positive("checkpoint.keep", options.checkpoint.keep);
  check_not_negative("checkpoint.every_epochs", static_cast<double>(options.checkpoint.every_epochs));
  check_not_negative("checkpoint.every_steps", static_cast<double>(options.checkpoint.every_steps));
  check_not_negative("early_stopping.patience", static_cast<double>(options.early_stopping.patience));
  check_not_negative("early_stopping.min_delta", options.early_stopping.min_delta);
  if (const Array& weights = options.class_weights; weights.defined())
    for (std::int64_t i = 0; i < weights.size(); ++i) {
      check_not_negative("class_weights", weights.at(i));
      if (!std::isfinite(weights.at(i)))
        throw UserError("fit", "class_weights must be finite", print_number(weights.at(i)));
    }
  std::set<std::string> names = {options.metric.name()};
  for (const Metric& metric : options.further_metrics)
    if (!names.insert(metric.name()).second)
      throw UserError("fit", "each metric must have a name of its own", "two of the name '" + metric.name() + "'",
                      "metric.named(\"...\")");
  if (!options.validate && (options.early_stopping.patience > 0 || options.optimizer.observes()))
    throw UserError("fit", "what is decided by a validation needs one",
                    options.early_stopping.patience > 0 ? "early_stopping without a validation"
                                                        : "an optimizer that follows it, without a validation",
                    "samples that are held out, or a number of epochs and a schedule that are fixed");
  if (training.size() < 1 || validation.size() < 1)
    throw UserError("fit", "training and validation must both hold samples",
                    std::to_string(training.size()) + " and " + std::to_string(validation.size()) + " samples");
  const Tree<ValueType> inputs = training.inputs(), other_inputs = validation.inputs();
  if (inputs.flatten() != other_inputs.flatten() || inputs.names() != other_inputs.names() ||
      training.target_type(1) != validation.target_type(1) || training.has_lengths() != validation.has_lengths())
    throw UserError("fit", "training and validation samples must have the same shapes and dtype",
                    data::str(inputs) + " and " + data::str(other_inputs));
  if (!options.checkpoint.folder.empty()) check_checkpoint_folder(options.checkpoint.folder, options.resume.get());
}

// Targets of the steps that are there: one that names no class, or lies outside of the loss's domain, would train without a word.
void check_targets(const losses::Loss& loss, const ValueType& prediction, const data::Dataset& training) {
  const std::int64_t batch = prediction.shape[0];
  const std::int64_t num_classes = loss.num_labels(prediction, training.target_type(batch));
  if (num_classes == 0 && !loss.targets().is_bounded()) return;
  constexpr std::int64_t most_rows = 1024;
  const Shape shape = training.target_shape();
  // Elements of a prediction (B, T, ..., C) beyond a row's steps do not count.
  const bool steps = training.has_lengths() && shape.rank() > 0 && prediction.shape.rank() > 2;
  const std::int64_t a_step = steps && shape[0] > 0 ? shape.size() / shape[0] : 1;
  for (std::int64_t first = 0; first < training.size(); first += most_rows) {
    const std::int64_t rows = std::min(most_rows, training.size() - first);
    std::vector<std::int64_t> samples(static_cast<std::size_t>(rows));
    std::iota(samples.begin(), samples.end(), first);
    const ValueType type = training.target_type(rows);
    Array targets(type.dtype, type.shape);
    std::vector<std::int32_t> lengths(samples.size());
    Array weights(training.dtype(), {rows});
    training.gather(samples, {.targets = targets.raw(),
                              .lengths = steps ? lengths.data() : nullptr,
                              .weights = training.has_weights() ? weights.raw() : nullptr});
    for (std::int64_t row = 0; row < rows; ++row) {
      // A sample of weight 0 may be anything.
      if (training.has_weights() && weights.at(row) == 0) continue;
      const std::int64_t count =
          steps ? std::min(lengths[static_cast<std::size_t>(row)] * a_step, shape.size()) : shape.size();
      for (std::int64_t i = 0; i < count; ++i)
        check_target("fit", loss, num_classes, targets.at(row * shape.size() + i),
                     " of training sample " + std::to_string(first + row));
    }
  }
}

// Not of the seed: two runs of one are two. 128 bits, as many as no two programs draw alike.
std::string fresh_run() {
  std::random_device random;
  std::string digits;
  for (int i = 0; i < 32; ++i) digits += "0123456789abcdef"[random() % 16];
  return digits;
}

void check_resume(const TrainingState& state, const TrainingState& wanted) {
  const auto same = [](const char* name, auto stored, auto now) {
    if (stored != now)
      throw UserError("resume", std::string(name) + " must be that of the checkpoint, " + std::to_string(stored),
                      std::to_string(now), "the configuration and the data that the run was started with");
  };
  same("the number of training samples", state.num_samples, wanted.num_samples);
  same("batch_size", state.batch_size, wanted.batch_size);
  same("seed", state.seed, wanted.seed);
  if (state.generator != wanted.generator)
    throw UserError("resume", "generator must be that of the checkpoint, " + std::string(name_of(state.generator)),
                    std::string(name_of(wanted.generator)), "the configuration that the run was started with");
  same("shuffle", state.shuffle, wanted.shuffle);
}

// Another optimizer keeps other tensors.
void check_optimizer(std::vector<std::string> stored, std::vector<std::string> now) {
  std::ranges::sort(stored);
  std::ranges::sort(now);
  if (stored == now) return;
  std::vector<std::string> missing, extra;
  std::ranges::set_difference(stored, now, std::back_inserter(missing));
  std::ranges::set_difference(now, stored, std::back_inserter(extra));
  throw UserError("resume",
                  missing.empty() ? "optimizer must be that of the checkpoint, which keeps no " + extra.front()
                                  : "optimizer must be that of the checkpoint, which keeps " + missing.front(),
                  missing.empty() ? "one that does" : "one that does not",
                  "the optimizer that the run was started with, with the same options");
}

std::vector<Array> flatten(const StepTrees& trees) {
  std::vector<Array> all;
  for (const Tree<Array>* tree : {&trees.params, &trees.state, &trees.buffers})
    for (const Array& leaf : tree->flatten()) all.push_back(leaf);
  return all;
}

std::string times(std::int64_t epoch, std::int64_t step) {
  return "step " + std::to_string(step) + " of epoch " + std::to_string(epoch);
}

class Fit {
 public:
  Fit(const nn::Layer& model, const data::Dataset& training, const data::Dataset& validation, const FitOptions& options)
      : model_(model), training_(training), validation_(validation), options_(options), writer_(options.checkpoint) {
    const std::int64_t batch = std::min(options.batch_size, training.size());
    plan_ = {.batch_size = batch,
             .num_epochs = options.epochs,
             .seed = options.seed,
             .shuffle = options.shuffle,
             .steps_per_call = std::min(options.steps_per_call, training.size() / batch),
             .every_steps = options.checkpoint.folder.empty() ? 0 : options.checkpoint.every_steps};
    steps_per_epoch_ = divided_up(training.size(), batch);

    const nn::Seed seed = nn::Seed(options.seed, options.generator).started();
    fresh_.params = model.init(seed, training.dtype(), options.init);
    // Copied as it stands after the parameters: from there the epochs' orders follow.
    if (seed.stream()) plan_.torch = std::make_shared<const nn::TorchGenerator>(*seed.stream());
    fresh_.state = options.optimizer.init(fresh_.params);
    fresh_.buffers = model.init_buffers(training.dtype());
    state_.seed = options.seed;
    state_.generator = options.generator;
    state_.batch_size = batch;
    state_.num_samples = training.size();
    state_.shuffle = options.shuffle;
    if (options.resume) resume(*options.resume);
    if (!options.resume) {
      state_.run = fresh_run();
      state_.params = fresh_.params;
      state_.optimizer_state = fresh_.state;
      state_.buffers = fresh_.buffers;
    }

    const Stopwatch watch(result_.times.compile_s);
    step_options_ = step_options(options, training.has_lengths(), training.has_weights(), fresh_.buffers);
    const Step step = train_step(model, options.loss, options.optimizer, fresh_.params, fresh_.state,
                                 training.input_types(batch), training.target_type(batch), step_options_);
    runner_.emplace(step, plan_.steps_per_call, step_compile_options(options.compile),
                    flatten({state_.params, state_.optimizer_state, state_.buffers}));
    if (options.validate) predictor_.emplace(model, fresh_.params, fresh_.buffers, validation, batch, options.compile);
    check_targets(options.loss, predictor_ ? predictor_->output_type() : model.output_type(training.input_types(batch)),
                  training);
    if (options.optimizer.observes()) {
      CompileOptions compile_options = options.compile;
      compile_options.threads = 1;
      observe_ = compile(observe_step(options.optimizer, fresh_.state).graph(), compile_options);
    }
    good_ = snapshot();
  }

  FitResult run() {
    start_ = Clock::now();
    if (stopping_early()) result_.status = FitResult::Status::StoppedEarly;
    try {
      if (result_.status == FitResult::Status::Finished) run_epochs();
    } catch (...) {
      save_position();
      throw;
    }
    finish();
    return std::move(result_);
  }

 private:
  void resume(const TrainingState& from) {
    check_resume(from, state_);
    if (from.step >= steps_per_epoch_)
      throw UserError(
          "resume",
          "the checkpoint's position must be within an epoch of " + std::to_string(steps_per_epoch_) + " steps",
          "step " + std::to_string(from.step));
    state_ = from;
    const std::string source = "the checkpoint";
    state_.params = match_tree(from.params, fresh_.params, source);
    state_.buffers = match_tree(from.buffers, fresh_.buffers, source);
    check_optimizer(from.optimizer_state.names(), fresh_.state.names());
    state_.optimizer_state = match_tree(from.optimizer_state, fresh_.state, source);
    if (from.best_epoch == 0) return;
    state_.best_params = match_tree(from.best_params, fresh_.params, source);
    state_.best_buffers = match_tree(from.best_buffers, fresh_.buffers, source);
  }

  void run_epochs() {
    BatchStream stream(training_, plan_, {state_.epoch, state_.step, state_.num_steps}, options_.prefetch);
    for (;;) {
      if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed) && !done()) {
        result_.status = FitResult::Status::Stopped;
        result_.message = "Stopped after " + times(state_.epoch, state_.step) + ".";
        return;
      }
      const Clock::time_point block_start = Clock::now();
      const BatchBlock* block = nullptr;
      {
        const Stopwatch watch(result_.times.gather_s);
        block = stream.next();
      }
      if (block == nullptr) return;
      const bool finite = take(*block);
      state_.epoch_seconds += seconds_since(block_start);
      if (!finite) return diverged(state_.epoch, state_.step, "The loss was not finite");
      tell(state_.epoch, state_.step);
      const bool mark = plan_.every_steps > 0 && state_.num_steps % plan_.every_steps == 0;
      if (block->ends_epoch ? !end_epoch() : mark && !keep_good(true)) return;
    }
  }

  bool done() const { return state_.epoch > options_.epochs; }

  // Before an exception goes on its way: the state after the last whole step, or before the steps whose validation it came out of.
  void save_position() {
    if (options_.checkpoint.folder.empty()) return;
    if (state_.step < steps_per_epoch_ && good_.num_steps != state_.num_steps && all_finite(runner_->carried())) {
      good_ = snapshot();
      written_ = false;
    }
    if (!written_) writer_.write(good_);
    writer_.finish();
  }

  // A call of a program, again if it was cancelled and goes on.
  template <typename Call> auto uninterrupted(const Call& call) const {
    for (;;) {
      try {
        return call();
      } catch (const Cancelled&) {
        if (!options_.on_cancelled || !options_.on_cancelled()) throw;
      }
    }
  }

  // The steps of a block. False if a loss was not finite: the position is then that step.
  bool take(const BatchBlock& block) {
    StepRunner::Result out;
    {
      const Stopwatch watch(result_.times.compile_s);
      runner_->prepare(block);
    }
    {
      const Stopwatch watch(result_.times.steps_s);
      out = uninterrupted([&] { return runner_->run(block); });
    }
    for (std::size_t i = 0; i < out.losses.size(); ++i) {
      ++state_.step;
      ++state_.num_steps;
      ++result_.times.num_steps;
      const double loss = out.losses[i];
      if (!std::isfinite(loss)) return false;
      if (out.weights.empty()) {
        state_.epoch_loss += loss * static_cast<double>(block.rows) / static_cast<double>(training_.size());
      } else {
        state_.epoch_loss += loss * out.weights[i];
        state_.epoch_weight += out.weights[i];
      }
    }
    progress_.samples_here += block.count * block.rows;
    return true;
  }

  // Validation and what follows from it. False if the fit is over.
  bool end_epoch() {
    const Clock::time_point validation_start = Clock::now();
    const StepTrees current = trees();
    Tree<Array> params = options_.optimizer.evaluated(current.params, current.state);
    EpochRecord record{.epoch = state_.epoch, .train_loss = state_.epoch_loss};
    if (runner_->step().weighted && state_.epoch_weight > 0) record.train_loss /= state_.epoch_weight;
    if (options_.validate) {
      const Stopwatch watch(result_.times.validation_s);
      const Array outputs = uninterrupted([&] { return (*predictor_)(params, current.buffers, validation_); });
      const auto judge = [&](const Metric& metric) {
        record.metrics.emplace_back(metric.name(), uninterrupted([&] {
                                      return evaluate_metric(metric, statistics_.for_metric(metric, outputs),
                                                             validation_);
                                    }));
      };
      judge(options_.metric);
      std::ranges::for_each(options_.further_metrics, judge);
      record.validation = record.metrics.front().second;
    }
    record.seconds = state_.epoch_seconds + seconds_since(validation_start);
    // A loss that was finite can have made parameters that are not.
    if ((options_.validate && !std::isfinite(record.validation)) || !all_finite(runner_->carried())) {
      diverged(state_.epoch, state_.step);
      return false;
    }
    state_.history.push_back(record);
    state_.seconds += record.seconds;

    const double value = record.validation;
    const Metric& metric = options_.metric;
    progress_.best =
        !options_.validate || std::isnan(state_.best_validation) || metric.is_better(value, state_.best_validation);
    if (progress_.best) {
      state_.best_epoch = state_.epoch;
      state_.best_validation = value;
      state_.best_params = params;
      state_.best_buffers = current.buffers;
    }
    // The comparison where smaller is better; NaN: there is nothing to beat yet.
    if (const double loss = metric.as_loss(value);
        options_.validate && !(loss >= metric.as_loss(state_.stopping_reference) - options_.early_stopping.min_delta)) {
      state_.stopping_reference = value;
      state_.epochs_without_improvement = 0;
    } else {
      ++state_.epochs_without_improvement;
    }
    if (observe_) observe(current, metric.as_loss(value));

    const std::int64_t epoch = state_.epoch++, step = std::exchange(state_.step, 0);
    state_.epoch_loss = state_.epoch_weight = state_.epoch_seconds = 0;
    progress_.epoch_done = true;
    progress_.epoch_record = &state_.history.back();
    progress_.params = &params;
    tell(epoch, step);
    progress_.epoch_done = false;
    progress_.epoch_record = nullptr;
    progress_.params = nullptr;

    const std::int64_t epochs = options_.checkpoint.every_epochs, steps = plan_.every_steps;
    const bool due = (epochs > 0 && (state_.epoch - 1) % epochs == 0) || (steps > 0 && state_.num_steps % steps == 0);
    if (!keep_good(due)) return false;
    if (!stopping_early() || done()) return true;
    result_.status = FitResult::Status::StoppedEarly;
    return false;
  }

  bool stopping_early() const {
    const std::int64_t patience = options_.early_stopping.patience;
    return patience > 0 && state_.epochs_without_improvement >= patience;
  }

  void observe(const StepTrees& current, double value) {
    std::vector<Array> inputs = current.state.flatten();
    inputs.push_back(Array::scalar(value));
    const std::vector<Array> state = uninterrupted([&] { return (*observe_)(inputs); });
    runner_->set_carried(flatten({current.params, current.state.unflatten(state), current.buffers}));
  }

  void tell(std::int64_t epoch, std::int64_t step) {
    progress_.epoch = epoch;
    progress_.num_epochs = options_.epochs;
    progress_.step = step;
    progress_.num_steps = steps_per_epoch_;
    progress_.steps_here = result_.times.num_steps;
    progress_.elapsed_s = seconds_since(start_);
    progress_.training_s = result_.times.gather_s + result_.times.steps_s;
    if (options_.on_progress) options_.on_progress(progress_);
  }

  // Copies of what the step carries.
  StepTrees trees() const {
    std::vector<Array> copies;
    for (const Array& leaf : runner_->carried()) copies.push_back(leaf.clone());
    const std::span<const Array> all(copies);
    const std::size_t p = fresh_.params.num_leaves(), s = fresh_.state.num_leaves();
    return {fresh_.params.unflatten(all.first(p)), fresh_.state.unflatten(all.subspan(p, s)),
            fresh_.buffers.unflatten(all.subspan(p + s))};
  }

  TrainingState snapshot() const {
    TrainingState copy = state_;
    const StepTrees current = trees();
    copy.params = current.params;
    copy.optimizer_state = current.state;
    copy.buffers = current.buffers;
    return copy;
  }

  // Remembers the state as one to go back to, if all of it is finite, and writes it if that is due.
  bool keep_good(bool write) {
    if (!all_finite(runner_->carried())) {
      diverged(state_.epoch, state_.step);
      return false;
    }
    good_ = snapshot();
    written_ = write;
    if (write) writer_.write(good_);
    return true;
  }

  // The first tensor that was not finite: takes the steps since the last good state again, one by one, and looks into the first that
  // leaves something infinite or NaN behind. `what` was seen of it at that step.
  void diverged(std::int64_t epoch, std::int64_t step,
                const std::string& what = "The loss was finite, but not what came of it,") {
    result_.status = FitResult::Status::NonFiniteLoss;
    runner_->set_carried(flatten({good_.params, good_.optimizer_state, good_.buffers}));
    BatchPlan plan = plan_;
    plan.steps_per_call = 1;
    BatchStream stream(training_, plan, {good_.epoch, good_.step, good_.num_steps}, false);
    NonFinite& first = result_.non_finite;
    bool only_gradients = false;  // of that step: its loss is finite, they are not
    while (const BatchBlock* block = stream.next()) {
      const std::vector<Array> before = flatten(trees());
      const StepRunner::Result out = runner_->run(*block);
      const bool finite_loss = std::isfinite(out.losses[0]);
      if (!finite_loss || !all_finite(runner_->carried())) {
        const FirstNonFinite found = find_non_finite(model_, options_, fresh_, before,
                                                     training_.input_types(plan.batch_size), *block, step_options_);
        first = {block->start.epoch, block->start.step + 1, found.tensor};
        only_gradients = finite_loss && found.in_gradients;
        break;
      }
      if (block->start.epoch == epoch && block->start.step + 1 >= step) break;
    }
    if (first.tensor.empty()) first = {epoch, step, "the validation metric: all tensors of the steps were finite"};

    std::string& text = result_.message;
    text = what + " at " + times(epoch, step) + ". ";
    if (only_gradients)
      text += "A gradient was not finite at " + times(first.epoch, first.step) + ", where the loss was finite. ";
    text += "First of all tensors, at " + times(first.epoch, first.step) + ", was " + first.tensor + ". ";
    text += state_.best_epoch > 0 ? "The parameters of epoch " + std::to_string(state_.best_epoch) + " are kept."
                                  : "No epoch was completed: the parameters are the initial ones.";
    text += " Try: " + remedy(first.tensor) + ".";
  }

  static std::string remedy(const std::string& tensor) {
    if (tensor.starts_with(batch_inputs) || tensor.starts_with(batch_input) || tensor.starts_with(batch_targets))
      return "fill what is missing in the data, or leave those samples out";
    if (tensor.starts_with("the validation metric"))
      return "look for validation samples that are not finite, or extreme; a smaller learning_rate, or clipping of the "
             "gradients";
    return "a smaller learning_rate, clipping of the gradients, or look for extreme values in the inputs";
  }

  void finish() {
    if (result_.status == FitResult::Status::NonFiniteLoss) {
      result_.state = good_;
    } else {
      // Steps after the last good state are checked before they are kept.
      if (good_.num_steps != state_.num_steps && !keep_good(true)) return finish();
      if (!written_) writer_.write(good_);
      result_.state = good_;
    }
    writer_.finish();
    if (result_.status == FitResult::Status::StoppedEarly)
      result_.message = "Stopped early: no epoch since " + std::to_string(state_.best_epoch) +
                        " was better by more than " + "min_delta, for " +
                        std::to_string(state_.epochs_without_improvement) + " epochs.";
    const bool some = state_.best_epoch > 0;
    result_.params = some ? state_.best_params : fresh_.params;
    result_.buffers = some ? state_.best_buffers : fresh_.buffers;
    result_.best_epoch = state_.best_epoch;
    result_.best_validation = state_.best_validation;
    result_.history = state_.history;
    result_.step_explanation = runner_->explain();
    if (predictor_) result_.validation_explanation = predictor_->explain();
  }

  const nn::Layer& model_;
  const data::Dataset &training_, &validation_;
  const FitOptions& options_;
  BatchPlan plan_;
  std::int64_t steps_per_epoch_ = 0;
  StepTrees fresh_;
  StepOptions step_options_;
  std::optional<StepRunner> runner_;
  std::optional<Predictor> predictor_;
  OutputStatistics statistics_{options_.loss};
  std::optional<Executable> observe_;
  TrainingState
      state_;  // its params, optimizer_state and buffers are those at the start: the runner has the current ones
  TrainingState good_;  // whole, and finite
  bool written_ = false;
  CheckpointWriter writer_;
  Progress progress_;
  FitResult result_;
  Clock::time_point start_;
};

}  // namespace

const char* name_of(FitResult::Status status) {
  using enum FitResult::Status;
  switch (status) {
    case Finished: return "finished";
    case StoppedEarly: return "stopped_early";
    case NonFiniteLoss: return "non_finite_loss";
    case Stopped: break;
  }
  return "stopped";
}

FitResult fit(const nn::Layer& model, const data::Dataset& training, const data::Dataset& validation,
              const FitOptions& options) {
  check(training, validation, options);
  return Fit(model, training, validation, options).run();
}

}  // namespace hotloop::train
