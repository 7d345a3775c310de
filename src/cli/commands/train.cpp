#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <utility>

#include "backends/cuda/device.h"
#include "cli/command.h"
#include "cli/evaluation.h"
#include "cli/html_report.h"
#include "cli/job_options.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "cli/shown_metrics.h"
#include "cli/signals.h"
#include "cli/training_log.h"
#include "hotloop/error.h"
#include "io/files.h"

namespace hotloop::cli {
namespace {

using nlohmann::ordered_json;
using Status = train::FitResult::Status;

struct TrainOptions {
  std::shared_ptr<JobSource> source;
  std::string out, resume;
  bool overwrite = false, json = false;

  bool numbers_runs() const { return out.empty() && !overwrite; }
};

// Keeps the launches of the first epoch: every later one is alike, and a long run would fill memory.
class FirstEpoch {
 public:
  FirstEpoch() { KernelHistory::start(); }
  void update(const train::Progress& progress) {
    if (progress.epoch_done) finish();
  }
  void finish() {
    if (!recording_) return;
    recording_ = false;
    records_ = KernelHistory::stop();
  }
  const std::vector<KernelRecord>& records() const { return records_; }

 private:
  bool recording_ = true;
  std::vector<KernelRecord> records_;
};

std::string indented_by(const std::string& text, std::size_t blanks) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += std::string(blanks, ' ') + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

// What a run that is there is in the way of, before any work; for a resumed run `source` becomes its configuration.
RunFolder choose_folder(const TrainOptions& options) {
  JobSource& source = *options.source;
  if (!options.resume.empty()) {
    if (!source.path.empty() || !options.out.empty() || options.overwrite)
      throw UserError("arguments", "--resume RUN goes on with RUN's own configuration, in its own folder",
                      "a CONFIG, --out or --overwrite beside it", "hotloop train --resume " + options.resume);
    RunFolder folder{std::filesystem::path(options.resume)};
    source.path = folder.config();
    return folder;
  }
  if (source.path.empty())
    throw UserError("arguments", "train takes a CONFIG, or --resume RUN", "neither", "hotloop train --help");
  RunFolder folder(options.out.empty() ? "runs/" + source.path.stem().string() : options.out);
  folder.put_right();
  if (!options.numbers_runs()) folder.check_free(options.overwrite);
  return folder;
}

// That of a run which is to go on.
std::optional<io::FolderLock> lock_resumed(const TrainOptions& options, const RunFolder& folder) {
  if (options.resume.empty()) return std::nullopt;
  if (!std::filesystem::is_directory(folder.path())) folder.check_run();
  io::FolderLock lock(folder.path(), "run");
  folder.recover();
  folder.check_run();
  return lock;
}

// One run of the command, step by step.
class Training {
 public:
  explicit Training(const TrainOptions& options)
      : options_(options),
        out_(options.json ? stderr : stdout),
        folder_(choose_folder(options)),
        lock_(lock_resumed(options, folder_)),
        job_(read_job(*options.source)),
        samples_(load_samples(job_)),
        model_(job_.make_model(job_.input_type(samples_))) {
    if (samples_.validation().size() == 0 || samples_.test().size() == 0)
      throw UserError("split", "validation and test parts must hold samples", samples_.describe(),
                      "[split] train = 0.7 and validation = 0.15, or more rows");
    check_baselines(job_, samples_);
    // A run's model is as it was trained.
    if (options.resume.empty()) job_.check_classes(model_, samples_);
    params_ = model_.init({job_.fit.seed, job_.fit.generator}, samples_.train().dtype(), job_.fit.init);
    shown_ = shown_metrics(job_, samples_);
  }

  void run() {
    int signal_status = 0;
    try {
      prepare_folder();
      if (finished()) {
        tell_finished();
        return;
      }
      if (!is_new()) fit_baselines();
      announce();
      signal_status = fit_model();
    } catch (const std::exception& e) {
      // A job that does not fit together leaves no run behind, which the mended one would have to make way for. That the metric does not fit
      // the targets, the first validation tells.
      if (!began_ || (!worth_keeping_ && is_of_metric(e))) take_back();
      throw;
    }
    first_epoch_->finish();
    if (run_.status == Status::NonFiniteLoss) {
      std::fflush(out_);
      fmt::print(stderr, "hotloop: [train] {}\n", run_.message);
    } else if (!run_.message.empty()) {
      fmt::print(out_, "{}\n", run_.message);
    }
    log_->finish(run_.history);
    if (run_.status == Status::Stopped) {
      write_metrics();
      fmt::print(out_, "Go on with: hotloop train --resume {}\n", folder_.path().string());
      if (folder_.is_outdone())
        fmt::print(out_, "Until an epoch is over, the run that it replaces stays in {}.\n", folder_.aside().string());
      throw ExitCode{signal_status};
    }
    const bool usable = run_.best_epoch > 0;
    if (usable) keep_model(run_.params, run_.buffers);
    if (usable) test();
    // Without a further step, what is missing of a run that was killed: its configuration's, not one's that no step was taken with.
    if (!is_new() && !began_ && !std::filesystem::exists(folder_.baselines()) && has_this_configuration())
      write_baselines();
    write_metrics();
    if (usable) write_report();
    print_report();
    if (folder_.is_outdone()) {
      folder_.bring_back();
      fmt::print(out_, "{} is the run again that was to be replaced.\n", folder_.path().string());
    }
    if (run_.status == Status::NonFiniteLoss) throw ExitCode{exit_user_error};
  }

 private:
  bool is_new() const { return options_.resume.empty(); }

  void prepare_folder() {
    if (is_new()) {
      fit_baselines();
      claim_folder_for_run();
    }
    io::remove_temporaries(folder_.path());
    job_.fit.checkpoint.folder = folder_.checkpoints();
    const std::string preparation = samples_.preparation().json();
    if (is_new()) {
      write_config();
      folder_.write(folder_.preparation(), preparation);
      return;
    }
    // What was fitted on the training rows tells one table from another.
    if (!std::filesystem::exists(folder_.preparation()))
      folder_.write(folder_.preparation(), preparation);
    else if (const data::Preparation stored = folder_.read_preparation(); stored.json() != preparation) {
      const DType dtype = stored.recipe().dtype;
      if (dtype != job_.recipe.dtype)
        throw UserError("resume", "[train] precision must be that the run was started with", job_.precision(),
                        "precision = " + print_toml(std::string(name_of(dtype))));
      throw UserError("resume", "the table and what is made of it must be those the run was started with",
                      "another " + folder_.preparation().filename().string() + " from " + job_.data_file.string(),
                      "the table and the [data], [window] and [split] settings of the first training");
    }
    const std::filesystem::path latest = train::latest_checkpoint(folder_.checkpoints());
    if (!latest.empty()) job_.fit.resume = std::make_shared<train::TrainingState>(train::load_checkpoint(latest));
  }

  void claim_folder_for_run() {
    ClaimedFolder claimed =
        options_.numbers_runs() ? claim_next_folder(folder_.path()) : claim_folder(folder_.path(), options_.overwrite);
    folder_ = claimed.folder;
    for (const std::filesystem::path& input : {options_.source->path, job_.data_file})
      if (folder_.owns(input))
        throw UserError("run", "a run that is replaced must not hold what the new one is made from", input.string(),
                        "another --out, or a copy of it elsewhere");
    if (folder_.holds_run()) folder_.set_aside();
    claimed_.emplace(std::move(claimed));
  }

  // What this program wrote goes, and a run that made way for it is there again.
  void take_back() const {
    if (!claimed_) return;
    folder_.remove_run();
    folder_.recover();
    std::error_code not_empty;
    if (claimed_->made) std::filesystem::remove(folder_.path(), not_empty);
  }

  bool is_of_metric(const std::exception& thrown) const {
    const auto* error = dynamic_cast<const UserError*>(&thrown);
    if (error == nullptr) return false;
    const auto is = [&](const metrics::Metric& metric) {
      return error->where() == metric.name() || (metric.loss() != nullptr && error->where() == metric.loss()->name());
    };
    return is(job_.fit.metric) || std::ranges::any_of(job_.fit.further_metrics, is);
  }

  void fit_baselines() { ridges_ = fit_ridges(job_, samples_); }

  bool has_this_configuration() const {
    return io::read_file(folder_.config(), "run") == text_for_folder(*options_.source, folder_.home());
  }

  // Whether there is nothing left to do: this very configuration, its results and the report were written, one after the other, and no step
  // came after the last epoch.
  bool finished() const {
    if (!job_.fit.resume || job_.fit.resume->step > 0) return false;
    const ordered_json metrics = folder_.read_metrics();
    const std::string status = metrics.value("status", "");
    const bool all = status == name_of(Status::Finished) && job_.fit.resume->epoch > job_.fit.epochs;
    if (!all && status != name_of(Status::StoppedEarly)) return false;
    if (metrics.value("epochs", std::int64_t{0}) + 1 != job_.fit.resume->epoch) return false;
    const auto written = [](const std::filesystem::path& file) {
      std::error_code none;
      return std::filesystem::last_write_time(file, none);  // the earliest of times if there is no such file
    };
    return written(folder_.config()) <= written(folder_.metrics()) &&
           written(folder_.metrics()) <= written(folder_.report()) && has_this_configuration();
  }

  void tell_finished() const {
    const std::string run = folder_.path().string();
    const ordered_json metrics = folder_.read_metrics();
    const train::FitOptions& fit = job_.fit;
    if (metrics["status"] == name_of(Status::Finished))
      fmt::print(
          out_,
          "{0} is finished, with all of its {1} epochs.\nGo on with more: hotloop train --resume {0} --epochs {2}\n",
          run, fit.epochs, 2 * fit.epochs);
    else
      fmt::print(
          out_, "{0} is finished. {1}\nGo on with more patience: hotloop train --resume {0} --set train.patience={2}\n",
          run, metrics["message"].get<std::string>(), 2 * fit.early_stopping.patience);
    if (options_.json) print_json(metrics);
  }

  // A run that is gone on with keeps its configuration, and what was fitted for its baselines, until a step was taken with the new one,
  // which may not fit.
  void write_config() {
    // Ridges of another configuration go before it comes: a kill in between leaves none, which the next step makes up for.
    const bool same = std::filesystem::exists(folder_.baselines()) &&
                      io::read_file(folder_.baselines(), "run") == print_ridges(job_, ridges_);
    if (!same) std::filesystem::remove(folder_.baselines());
    folder_.write(folder_.config(), text_for_folder(*options_.source, folder_.home()));
    if (!same) write_baselines();
  }

  void write_baselines() {
    if (!ridges_.empty()) folder_.write(folder_.baselines(), print_ridges(job_, ridges_));
  }

  void announce() {
    fmt::print(out_, "Data    {}: {} rows\n        {}\n", job_.data_file.string(), grouped(samples_.num_rows()),
               wrapped(samples_.describe(), 8));
    fmt::print(out_, "{}", indented_by(samples_.preparation().describe(), 8));
    fmt::print(out_, "Model   {}\n", wrapped(describe_model(job_, params_), 8));
    fmt::print(out_, "Step    {} {}, batches of {}; compiling\n", job_.loss_name, job_.optimizer_name,
               job_.fit.batch_size);
    fmt::print(out_, "Run     {}\n", folder_.path().string());
    if (job_.fit.resume && job_.fit.resume->epoch > job_.fit.epochs)
      fmt::print(out_, "        its {} epochs are over: results and report again\n", job_.fit.epochs);
    else if (job_.fit.resume)
      fmt::print(out_, "        going on after step {} of epoch {}\n", job_.fit.resume->step, job_.fit.resume->epoch);
    else if (!options_.resume.empty())
      fmt::print(out_, "        it has no checkpoint yet: from the start\n");
    std::fflush(out_);
  }

  // The exit status of the signal that came, if one did.
  int fit_model() {
    ProgressBar bar(out_, shown_);
    log_.emplace(folder_, shown_, job_.fit.resume.get());
    first_epoch_.emplace();
    const StopSignals signals;
    job_.fit.stop = &signals.stop();
    job_.fit.on_progress = [&](const train::Progress& progress) {
      if (!std::exchange(began_, true) && !is_new()) write_config();
      if (progress.epoch_done) worth_keeping_ = true;
      first_epoch_->update(progress);
      log_->update(progress);
      bar.update(progress);
    };
    // The best parameters so far are there for whoever looks, or for whoever has to do with them after a crash.
    job_.fit.checkpoint.on_written = [&](const train::TrainingState& state) {
      if (state.num_steps > 0) worth_keeping_ = true;
      if (state.best_epoch == 0 || state.best_epoch == written_best_) return;
      keep_model(state.best_params, state.best_buffers);
      written_best_ = state.best_epoch;
    };
    run_ = fit(model_, samples_.train(), samples_.validation(), job_.fit);
    bar.end_line();
    return signals.exit_status();
  }

  // With a model of its own the run has replaced another one.
  void keep_model(const Tree<Array>& params, const Tree<Array>& buffers) const {
    train::save_model(folder_.model(), params, buffers);
    folder_.drop_aside();
  }

  void test() {
    test_ = evaluate(job_, samples_, model_, run_.params, run_.buffers, ridges_,
                     fmt::format("this model, epoch {} of {}", run_.best_epoch, run_.history.size()), true);
  }

  // That programs of the first epoch ran on; empty: all ran on the processor.
  std::string gpu_name() const {
    const auto on_device = [](const KernelRecord& r) { return r.device_us > 0; };
    const cuda::Device* device =
        std::ranges::any_of(first_epoch_->records(), on_device) ? cuda::find_device() : nullptr;
    return device == nullptr ? "" : device->info().name;
  }

  // Of each metric the validation and the test; null where there is none.
  ordered_json metrics_of_best_epoch() const {
    ordered_json json = ordered_json::object();
    for (const ShownMetric& metric : shown_) json[metric.name] = {{"validation", nullptr}, {"test", nullptr}};
    const auto best = std::ranges::find(run_.history, run_.best_epoch, &train::EpochRecord::epoch);
    if (best != run_.history.end()) {
      const std::vector<double> values = shown_values(shown_, *best);
      for (std::size_t i = 0; i < values.size(); ++i) json[shown_[i].name]["validation"] = values[i];
    }
    if (!test_.results.empty()) add_test(job_, test_, json);
    return json;
  }

  void write_metrics() {
    const train::FitTimes& t = run_.times;
    ordered_json json = {{"hotloop", version},
                         {"status", name_of(run_.status)},
                         {"message", run_.message},
                         {"run", folder_.path().string()},
                         {"metric", job_.fit.metric.name()},
                         {"targets", job_.recipe.targets},
                         {"test", nullptr},
                         {"validation", nullptr},
                         {"best_epoch", run_.best_epoch},
                         {"epochs", run_.history.size()},
                         {"epoch", run_.state.epoch},
                         {"step", run_.state.step},
                         {"seed", job_.fit.seed},
                         {"generator", nn::name_of(job_.fit.generator)},
                         {"samples",
                          {{"train", samples_.train().size()},
                           {"validation", samples_.validation().size()},
                           {"test", samples_.test().size()}}}};
    if (run_.best_epoch > 0) json["validation"] = run_.best_validation * shown_[0].scale;
    if (run_.status == Status::NonFiniteLoss)
      json["non_finite"] = {
          {"epoch", run_.non_finite.epoch}, {"step", run_.non_finite.step}, {"tensor", run_.non_finite.tensor}};
    if (!test_.results.empty()) {
      json["test"] = test_.results[0].value;
      json["baselines"] = ordered_json::array();
      for (const TestResult& r : std::span(test_.results).subspan(1))
        json["baselines"].push_back({{"name", r.name}, {"test", r.value}});
    }
    json["metrics"] = metrics_of_best_epoch();
    if (ordered_json outputs = outputs_json(job_, test_.results); !outputs.empty())
      json["outputs"] = std::move(outputs);
    if (test_.calibration) json["calibration"] = calibration_json(*test_.calibration);
    if (test_.confusion) json["confusion"] = confusion_json(*test_.confusion);
    const std::string gpu = gpu_name();
    json["device"] = {{"cpu", cpu_name()},
                      {"gpu", gpu.empty() ? ordered_json() : ordered_json(gpu)},
                      {"target", gpu.empty() ? target_name_of(job_.fit.compile) : "cuda"},
                      {"backend", gpu.empty() ? job_.fit.compile.backend : "cuda"},
                      {"threads", job_.fit.compile.threads},
                      {"precision", job_.precision()}};
    json["seconds"] = {
        {"compile", t.compile_s}, {"batches", t.gather_s}, {"steps", t.steps_s}, {"validation", t.validation_s}};
    json["num_steps"] = run_.state.num_steps;
    ordered_json scales = ordered_json::object();
    const auto add = [](const data::Standardization& s) { return ordered_json{{"mean", s.mean}, {"std", s.std}}; };
    const std::vector<std::string> names = samples_.preparation().input_names();
    for (std::size_t i = 0; i < names.size(); ++i)
      scales["inputs"][names[i]] = add(samples_.preparation().input_scales()[i]);
    scales["target"] = add(samples_.target_scale());
    json["scales"] = scales;
    metrics_ = std::move(json);
    folder_.write(folder_.metrics(), json_text(metrics_));
  }

  void write_report() {
    ReportContent content;
    content.title = std::filesystem::absolute(folder_.path()).lexically_normal().filename().string();
    content.headline = fmt::format("Test {} {}, parameters of epoch {} of {}", job_.fit.metric.name(),
                                   score_text(test_.results[0].value), run_.best_epoch, run_.history.size());
    content.status = run_.message;
    content.result_heading = result_heading(job_, samples_, test_);
    content.results = test_.results;
    content.further = further_text(test_);
    content.larger_is_better = job_.fit.metric.better() == metrics::Better::Larger;
    const int threads = job_.fit.compile.threads;
    const std::string gpu = gpu_name();
    content.charts = validation_charts(run_.history, shown_, run_.best_epoch);
    content.charts.insert(content.charts.begin(), loss_chart(run_.history));
    folder_.write(folder_.path() / "loss.svg", print_svg(content.charts[0]));
    if (test_.phase) {
      folder_.write(folder_.path() / "phase.svg", print_svg(*test_.phase));
      content.charts.insert(content.charts.begin(), *test_.phase);
    }
    if (test_.forecast) {
      folder_.write(folder_.path() / "forecast.svg", print_svg(*test_.forecast));
      content.charts.insert(content.charts.begin(), *test_.forecast);
    }
    content.confusion = test_.confusion;
    content.outputs = outputs_table(job_, test_.results);
    if (test_.calibration)
      content.outputs += (content.outputs.empty() ? "" : "\n") + calibration_table(*test_.calibration);
    content.facts = {
        {"Data", fmt::format("{}, {} rows", job_.data_file.filename().string(), grouped(samples_.num_rows()))},
        {"Samples", samples_.describe()},
        {"Model", describe_model(job_, params_)},
        {"Training", fmt::format("{}, {}, batches of {}, seed {}", job_.loss_name, job_.optimizer_name,
                                 job_.fit.batch_size, job_.fit.seed)},
        {"Processor", cpu_name()},
        {"Ran on", !gpu.empty()
                       ? gpu
                       : fmt::format("{}, backend {}, {}", target_name_of(job_.fit.compile), job_.fit.compile.backend,
                                     threads == 0 ? "all cores"
                                                  : std::to_string(threads) + (threads == 1 ? " thread" : " threads"))},
        {"Hotloop", version}};
    content.kernels = kernels_table(first_epoch_->records());
    content.times = times_table(run_.times);
    content.step = run_.step_explanation;
    content.config = io::read_file(folder_.config(), "run");
    content.history = run_.history;
    content.metrics = shown_;
    folder_.write(folder_.report(), print_html(content));
  }

  void print_report() {
    if (options_.json) print_json(metrics_);
    if (test_.results.empty()) return;
    fmt::print(out_, "\n{}", results_table(result_heading(job_, samples_, test_), test_.results));
    if (!test_.further.empty()) fmt::print(out_, "  {}\n", wrapped(further_text(test_), 2));
    if (const std::string table = outputs_table(job_, test_.results); !table.empty()) fmt::print(out_, "\n{}", table);
    if (test_.calibration) fmt::print(out_, "\n{}", calibration_table(*test_.calibration));
    if (test_.confusion) fmt::print(out_, "\n{}", confusion_table(*test_.confusion));
    fmt::print(out_, "\n{}", times_table(run_.times));
    fmt::print(out_, "\nWhat ran, in the first epoch\n{}", kernels_table(first_epoch_->records()));
    fmt::print(out_, "\nThe step\n{}", run_.step_explanation);  // of 80 columns: not indented
    fmt::print(out_, "\nWritten to {}; open report.html there to see it all.\n", folder_.path().string());
  }

  const TrainOptions& options_;
  std::FILE* out_;
  RunFolder folder_;
  std::optional<io::FolderLock> lock_;
  Job job_;
  data::Samples samples_;
  nn::Layer model_;
  Tree<Array> params_;
  std::vector<ShownMetric> shown_;
  std::vector<train::Ridge> ridges_;
  std::optional<TrainingLog> log_;
  std::optional<FirstEpoch> first_epoch_;
  std::optional<ClaimedFolder> claimed_;  // for a new run, once it is prepared
  bool began_ = false;                    // this program took a step
  // An epoch, or a checkpoint after a step, of which the thread that writes them tells.
  std::atomic<bool> worth_keeping_{false};
  std::int64_t written_best_ = 0;
  train::FitResult run_;
  Evaluation test_;
  ordered_json metrics_;
};

}  // namespace

void command_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train the model of a configuration");
  command->footer(
      "\nThe parameters of the epoch with the best validation metric are kept, and tested\n"
      "beside the configuration's baselines. Ctrl-C stops after the step under way and\n"
      "writes a checkpoint, from which --resume goes on as if nothing had happened;\n"
      "a second Ctrl-C ends the program at once.");
  auto options = std::make_shared<TrainOptions>();
  options->source = std::make_shared<JobSource>();
  command->add_option("CONFIG", options->source->path, "TOML file, e.g. examples/demand.toml");
  command->add_option("--resume", options->resume, "go on with the run in this folder")->type_name("RUN");
  add_overrides(*command, options->source);
  command->add_option("--out", options->out,
                      "folder of the run, new or empty [runs/<name of\nCONFIG>, with -2, -3, ... if there is one]");
  command->add_flag("--overwrite", options->overwrite,
                    "replace the run in the folder, once an epoch of the\nnew one is over");
  command->add_flag("--json", options->json, "print the results as JSON, the rest to stderr");
  command->callback([options] { Training(*options).run(); });
}

}  // namespace hotloop::cli
