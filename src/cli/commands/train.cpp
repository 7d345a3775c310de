#include <fmt/format.h>
#include <unistd.h>
#include <atomic>
#include <csignal>

#include "cli/baselines.h"
#include "cli/command.h"
#include "cli/job_options.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "hotloop/error.h"

namespace hotloop::cli {
namespace {

using nlohmann::ordered_json;

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// Ctrl-C ends the training after the step under way; a second one ends the program.
void listen_for_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted.store(true, std::memory_order_relaxed); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

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

const char* status_name(train::FitResult::Status status) {
  switch (status) {
    case train::FitResult::Status::Finished: return "finished";
    case train::FitResult::Status::NonFiniteLoss: return "non_finite_loss";
    case train::FitResult::Status::Stopped: break;
  }
  return "stopped";
}

ordered_json metrics_of(const Job& job, const data::WindowedTable& windows, const train::FitResult& run,
                        std::span<const TestResult> results, double scale) {
  ordered_json scales = ordered_json::object();
  const auto add = [](const data::Standardization& s) { return ordered_json{{"mean", s.mean}, {"std", s.std}}; };
  for (std::size_t i = 0; i < job.window.inputs.size(); ++i)
    scales["inputs"][job.window.inputs[i]] = add(windows.input_scales()[i]);
  scales["target"] = add(windows.target_scale());
  ordered_json baselines = ordered_json::array();
  for (const TestResult& r : results.subspan(1)) baselines.push_back({{"name", r.name}, {"test", r.value}});
  const train::FitTimes& t = run.times;
  return {{"hotloop", version},
          {"status", status_name(run.status)},
          {"metric", job.fit.metric.name},
          {"target", job.window.target},
          {"test", results[0].value},
          {"validation", run.best_validation * scale},
          {"best_epoch", run.best_epoch},
          {"epochs", run.history.size()},
          {"seed", job.fit.seed},
          {"samples",
           {{"train", windows.train().size()},
            {"validation", windows.validation().size()},
            {"test", windows.test().size()}}},
          {"baselines", baselines},
          {"backend", job.fit.compile.backend},
          {"threads", job.fit.compile.threads},
          {"seconds",
           {{"compile", t.compile_s}, {"batches", t.gather_s}, {"steps", t.steps_s}, {"validation", t.validation_s}}},
          {"num_steps", t.num_steps},
          {"scales", scales}};
}

void print_indented(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    fmt::print("  {}\n", text.substr(at, end - at));
    at = end + 1;
  }
}

void train_job(const JobOptions& options, std::string out) {
  const std::filesystem::path config(options.config);
  if (out.empty()) out = "runs/" + config.stem().string();
  Job job = read_job(config, options.overrides);
  const data::Table table = load_table(job);
  const data::WindowedTable windows(table, job.window);
  if (windows.validation().size() == 0 || windows.test().size() == 0)
    throw UserError("split", "validation and test parts must hold windows", windows.describe());
  const nn::Layer model = job.make_model();
  const RunFolder folder{std::filesystem::path(out)};
  folder.create();

  fmt::print("Data    {}: {} rows\n        {}\n", job.data_file.string(), grouped(table.num_rows()),
             windows.describe());
  fmt::print("Model   {}\n", describe_model(job, model.init(job.fit.seed, job.window.dtype, job.fit.init)));
  fmt::print("Step    {} {}, batches of {}; compiling\n", job.loss_name, job.optimizer_name, job.fit.batch_size);
  std::fflush(stdout);

  const double scale = metric_scale(job, windows);
  ProgressBar bar(isatty(STDOUT_FILENO) != 0, job.fit.metric.name, scale);
  FirstEpoch first_epoch;
  listen_for_interrupt();
  job.fit.stop = &interrupted;
  job.fit.on_progress = [&](const train::Progress& progress) {
    first_epoch.update(progress);
    bar.update(progress);
  };
  const train::FitResult run = fit(model, windows.train(), windows.validation(), job.fit);
  first_epoch.finish();
  if (run.status != train::FitResult::Status::Finished) {
    if (isatty(STDOUT_FILENO) != 0) fmt::print("\n");
    fmt::print("{}\n", run.message);
    if (run.best_epoch == 0)
      throw ExitCode{run.status == train::FitResult::Status::Stopped ? exit_interrupted : exit_numerical};
  }

  const auto& target = windows.target_scale();
  const Array predicted = train::predict(model, run.params, windows.test(), job.fit.batch_size, job.fit.compile);
  std::vector<TestResult> results = {
      {fmt::format("this model, epoch {} of {}", run.best_epoch, run.history.size()),
       train::evaluate_metric(job.fit.metric, predicted, windows.test(), target.std, target.mean)}};
  for (TestResult& baseline : run_baselines(job, table, windows)) results.push_back(std::move(baseline));

  folder.write_params(run.params);
  folder.write_config(text_for_folder(config, options.overrides, folder.path()));
  folder.write_history(run.history, job.fit.metric.name, scale);
  folder.write_metrics(metrics_of(job, windows, run, results, scale));

  fmt::print("\n{}", results_table(fmt::format("{} on the {} test windows, in units of {}", job.fit.metric.name,
                                               grouped(windows.test().size()), job.window.target),
                                   results));
  fmt::print("\n{}", times_table(run.times));
  fmt::print("\nWhat ran, in the first epoch\n{}", kernels_table(first_epoch.records()));
  fmt::print("\nThe step\n");
  print_indented(run.step_explanation);
  fmt::print("\nWritten to {}: config.toml model.safetensors history.csv metrics.json\n", folder.path().string());
  if (run.status == train::FitResult::Status::NonFiniteLoss) throw ExitCode{exit_numerical};
  if (run.status == train::FitResult::Status::Stopped) throw ExitCode{exit_interrupted};
}

}  // namespace

void command_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train the model of a configuration");
  command->footer(
      "\nThe parameters of the epoch with the best validation metric are kept, and tested\n"
      "beside the configuration's baselines. Ctrl-C stops after the step under way.");
  const std::shared_ptr<JobOptions> options = add_job_options(*command);
  auto out = std::make_shared<std::string>();
  command->add_option("--out", *out, "folder of the run [runs/<name of CONFIG>]");
  command->callback([options, out] { train_job(*options, *out); });
}

}  // namespace hotloop::cli
