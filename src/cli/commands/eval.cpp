#include <fmt/format.h>

#include "cli/baselines.h"
#include "cli/command.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "hotloop/error.h"

namespace hotloop::cli {
namespace {

void evaluate_run(const std::string& path, const JobOverrides& overrides) {
  const RunFolder folder{std::filesystem::path(path)};
  const Job job = read_job(folder.config(), overrides);
  const nlohmann::ordered_json metrics = folder.read_metrics();
  const data::Table table = load_table(job);
  const data::WindowedTable windows(table, job.window);
  if (windows.test().size() == 0) throw UserError("split", "the test part must hold windows", windows.describe());
  const nn::Layer model = job.make_model();
  const Tree<Array> params = folder.read_params(model.init(job.fit.seed, job.window.dtype, job.fit.init));

  const auto& target = windows.target_scale();
  const Array predicted = train::predict(model, params, windows.test(), job.fit.batch_size, job.fit.compile);
  std::vector<TestResult> results = {
      {"this model", train::evaluate_metric(job.fit.metric, predicted, windows.test(), target.std, target.mean)}};
  for (TestResult& baseline : run_baselines(job, table, windows)) results.push_back(std::move(baseline));
  fmt::print("{}", results_table(fmt::format("{} on the {} test windows, in units of {}", job.fit.metric.name,
                                             grouped(windows.test().size()), job.window.target),
                                 results));
  if (metrics.contains("test") && metrics["test"].is_number()) {
    const double stored = metrics["test"].get<double>();
    fmt::print("The run recorded {:.4f}{}\n", stored,
               stored == results[0].value ? ", the same to the last bit."
                                          : fmt::format(" (difference {:.2g}).", results[0].value - stored));
  }
}

}  // namespace

void command_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Test the stored parameters of a run");
  auto path = std::make_shared<std::string>();
  auto overrides = std::make_shared<JobOverrides>();
  command->add_option("RUN", *path, "folder of a run, e.g. runs/demand")->required();
  command->add_option("--data", overrides->data_file, "table instead of [data] file");
  command->add_option("--threads", overrides->threads, "instead of [train] threads; 0: all");
  command->add_option("--backend", overrides->backend, "llvm, c or interp");
  command->callback([path, overrides] { evaluate_run(*path, *overrides); });
}

}  // namespace hotloop::cli
