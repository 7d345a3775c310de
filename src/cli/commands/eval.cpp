#include <fmt/format.h>
#include <algorithm>

#include "cli/evaluation.h"
#include "cli/job_options.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "hotloop/error.h"
#include "io/files.h"

namespace hotloop::cli {
namespace {

using nlohmann::ordered_json;

// Of the run's folder; none if it has none.
std::optional<std::vector<train::Ridge>> stored_ridges(const RunFolder& folder, const Job& job,
                                                       const data::Preparation& preparation,
                                                       const data::Samples& samples) {
  if (!std::filesystem::exists(folder.baselines())) return std::nullopt;
  return parse_ridges(io::read_file(folder.baselines(), "run"), folder.baselines().string(), job,
                      preparation.input_shape().size() * samples.test().target_shape().size());
}

void evaluate_run(const RunFolder& folder, JobSource source, bool json) {
  source.path = folder.config();
  const Job job = read_job(source);
  const ordered_json metrics = folder.read_metrics();
  const data::Preparation preparation = folder.read_preparation();
  // The run's test part, or all of another table.
  const data::Split split = source.data_file ? data::Split{.by = data::Split::By::None} : job.recipe.split;
  const std::int64_t stride = source.data_file ? 1 : job.recipe.stride;
  const data::Samples samples(*data::open_file(job.data_file, job.csv), preparation, split, stride, job.memory);
  std::optional<std::vector<train::Ridge>> ridges = stored_ridges(folder, job, preparation, samples);
  const bool longer = samples.test().input_shape() != preparation.input_shape();
  if (longer) ridges.reset();
  const nn::Layer model = job.make_model(job.input_type(samples));
  const DType dtype = samples.train().dtype();
  const train::ModelArrays arrays =
      train::load_model(folder.model(), model.init(job.fit.seed, dtype, job.fit.init), model.init_buffers(dtype));
  const Evaluation test =
      evaluate(job, samples, model, arrays.params, arrays.buffers, ridges, "this model", !source.data_file);
  std::string left_out;  // why ridge regressions are
  if (!ridges && std::ranges::find(job.baselines, Baseline::Kind::Ridge, &Baseline::kind) != job.baselines.end())
    left_out = longer ? "the table has longer series than the training had"
                      : "the run holds no " + folder.baselines().filename().string() + " to take it from";
  if (json) {
    ordered_json out = {{"metric", job.fit.metric.name()},
                        {"targets", job.recipe.targets},
                        {"samples", samples.test().size()},
                        {"test", test.results[0].value},
                        {"baselines", ordered_json::array()}};
    for (const TestResult& r : std::span(test.results).subspan(1))
      out["baselines"].push_back({{"name", r.name}, {"test", r.value}});
    add_test(job, test, out["metrics"]);
    std::string all_left_out = left_out.empty() ? "" : "ridge regression: " + left_out;
    for (const std::string& reason : test.left_out) all_left_out += (all_left_out.empty() ? "" : "; ") + reason;
    if (!all_left_out.empty()) out["left_out"] = all_left_out;
    if (ordered_json outputs = outputs_json(job, test.results); !outputs.empty()) out["outputs"] = std::move(outputs);
    if (test.calibration) out["calibration"] = calibration_json(*test.calibration);
    if (test.confusion) out["confusion"] = confusion_json(*test.confusion);
    print_json(out);
    return;
  }
  const std::string table = source.data_file ? source.data_file->filename().string() : "";
  fmt::print("{}", results_table(result_heading(job, samples, test, table), test.results));
  if (!test.further.empty()) fmt::print("  {}\n", wrapped(further_text(test), 2));
  if (!left_out.empty()) fmt::print("Ridge regression is left out: {}.\n", left_out);
  for (const std::string& reason : test.left_out) fmt::print("A baseline is left out: {}\n", reason);
  if (const std::string outputs = outputs_table(job, test.results); !outputs.empty()) fmt::print("\n{}", outputs);
  if (test.calibration) fmt::print("\n{}", calibration_table(*test.calibration));
  if (test.confusion) fmt::print("\n{}", confusion_table(*test.confusion));
  if (metrics.contains("test") && metrics["test"].is_number() && !source.data_file) {
    const double stored = metrics["test"].get<double>();
    fmt::print("The run recorded {}{}\n", score_text(stored),
               stored == test.results[0].value ? ", the same to the last bit."
                                               : fmt::format(" (difference {:.2g}).", test.results[0].value - stored));
  }
}

}  // namespace

void command_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Test the stored parameters of a run");
  command->footer(
      "\nThe test part of the run's table, or all of another one with the same columns.\n"
      "Scales, categories and whatever else was fitted in training, ridge regressions\n"
      "too, are applied as they were.");
  auto path = std::make_shared<std::string>();
  auto source = std::make_shared<JobSource>();
  auto json = std::make_shared<bool>(false);
  command->add_option("RUN", *path, "folder of a run, e.g. runs/demand")->required();
  add_run_overrides(*command, source);
  command->add_flag("--json", *json, "print the results as JSON");
  command->callback([path, source, json] { evaluate_run(RunFolder(*path).trained(), *source, *json); });
}

}  // namespace hotloop::cli
