#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "cli/command.h"
#include "cli/job_options.h"
#include "cli/machine.h"
#include "cli/report.h"
#include "hotloop/profile.h"
#include "hotloop/train.h"

namespace hotloop::cli {
namespace {

struct Shown {
  bool graph = false, kernel = false, profile = false, json = false;
};

struct Explained {
  Executable program;
  std::optional<Profile> profile;  // if it is shown
};

nlohmann::ordered_json as_json(const Profile& profile) {
  nlohmann::ordered_json out = {{"calls", profile.num_calls},
                                {"call_us", profile.call_us},
                                {"without_clocks_us", profile.without_clocks_us},
                                {"met_denormals", profile.met_denormals},
                                {"statements", nlohmann::ordered_json::array()}};
  for (const StatementTime& s : profile.statements)
    out["statements"].push_back({{"statement", s.statement},
                                 {"time_us", s.time_us},
                                 {"runs", s.runs},
                                 {"flops", s.flops},
                                 {"elements", s.elements}});
  return out;
}

nlohmann::ordered_json as_json(const Explained& explained, const Shown& shown) {
  const Executable& program = explained.program;
  nlohmann::ordered_json out = {{"explanation", program.explain()}};
  if (explained.profile) out["profile"] = as_json(*explained.profile);
  if (shown.graph) out["graph"] = program.graph_text();
  if (shown.kernel) out["kernel"] = program.kernel_text();
  return out;
}

void print(const Explained& explained, const Shown& shown) {
  const Executable& program = explained.program;
  fmt::print("{}", program.explain());
  if (explained.profile) fmt::print("\n{}", explained.profile->str());
  if (shown.graph) fmt::print("\n{}\n", program.graph_text());
  if (shown.kernel) fmt::print("\n{}\n", program.kernel_text());
}

// The first samples of the training part.
train::StepData first_batch(const Job& job) {
  const data::Samples samples = load_samples(job);
  const data::Dataset& part = samples.train();
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::min(job.fit.batch_size, part.size())));
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto room = [](const ValueType& type) { return Array(type.dtype, type.shape); };
  const auto size = static_cast<std::int64_t>(numbers.size());
  Array x = room(part.input_type(size)), y = room(part.target_type(size));
  part.gather(numbers, {.inputs = x.raw(), .targets = y.raw()});
  return {.x = x, .y = y, .key = train::step_key(job.fit.seed, 0)};
}

void explain_job(const JobSource& source, const Shown& shown) {
  const Job job = read_job(source);
  const ValueType x = job.input_type(), sample_y = data::target_type_of(job.recipe);
  const ValueType y = {sample_y.dtype, sample_y.shape.with_inserted(0, job.fit.batch_size)};
  const nn::Layer model = job.make_model(x);
  const Tree<Array> params = model.init(job.fit.seed, job.recipe.dtype, job.fit.init);
  const train::StepOptions options = {
      .key = true, .class_weights = job.fit.class_weights, .buffers = model.init_buffers(job.recipe.dtype)};
  const Tree<Array> state = job.fit.optimizer.init(params);
  const train::StepData batch = shown.profile ? first_batch(job) : train::StepData{};
  const auto explained = [&](const train::Step& step, const Tree<Array>& its_state, const train::StepData& data) {
    CompileOptions compile_options = job.fit.compile;
    compile_options.batch_axes = step.batch_axes;
    Explained result{compile(step.graph(), compile_options), std::nullopt};
    if (shown.profile)
      result.profile = profile(result.program, step.arguments(params, its_state, options.buffers, data));
    return result;
  };
  const Explained step =
      explained(train::train_step(model, job.fit.loss, job.fit.optimizer, params, state, x, y, options), state, batch);
  const Explained prediction = explained(train::predict_step(model, params, x, options), {}, {.x = batch.x});

  if (shown.json) {
    nlohmann::ordered_json out = {{"model", describe_model(job, params)},
                                  {"processor", cpu_name()},
                                  {"target", target_name_of(job.fit.compile)},
                                  {"parameters", nlohmann::ordered_json::object()}};
    params.for_each([&](const std::string& name, const Array& leaf) { out["parameters"][name] = leaf.type().str(); });
    out["training_step"] = as_json(step, shown);
    out["prediction"] = as_json(prediction, shown);
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("Model\n  {}\n", wrapped(describe_model(job, params), 2));
  params.for_each(
      [](const std::string& name, const Array& leaf) { fmt::print("  {:<24}{}\n", name, leaf.type().str()); });
  fmt::print("\nProcessor\n  {}, {}\n", cpu_name(), target_name_of(job.fit.compile));
  fmt::print("\nTraining step\n");
  print(step, shown);
  fmt::print("\nPrediction\n");
  print(prediction, shown);
}

}  // namespace

void command_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Show what a configuration compiles to");
  command->footer(
      "\nCompiles the training step and the prediction. The table is read only\nwhere the features depend on it, and "
      "to measure.");
  const std::shared_ptr<JobSource> source = add_job_options(*command);
  auto shown = std::make_shared<Shown>();
  command->add_flag("--profile", shown->profile,
                    "also measure where a call's time goes, on the\n"
                    "first batch of the table");
  command->add_flag("--graph", shown->graph, "also print the graphs after the passes");
  command->add_flag("--kernel", shown->kernel, "also print the kernel IR");
  command->add_flag("--json", shown->json, "print it as JSON");
  command->callback([source, shown] { explain_job(*source, *shown); });
}

}  // namespace hotloop::cli
