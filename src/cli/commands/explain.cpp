#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "cli/command.h"
#include "cli/job_options.h"
#include "cli/machine.h"
#include "cli/report.h"
#include "hotloop/error.h"
#include "hotloop/profile.h"
#include "hotloop/train.h"
#include "train/step_runner.h"

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

// What `steps` calls of a step are given, or one call of all of them: the first samples of the training part.
train::StepData first_batches(const data::Dataset& part, std::int64_t batch_size, std::int64_t steps,
                              std::uint64_t seed) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(batch_size * steps));
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto room = [&](const ValueType& batch) {
    return Array(batch.dtype, steps > 1 ? batch.shape.with_inserted(0, steps) : batch.shape);
  };
  Array x = room(part.input_type(batch_size));
  train::StepData data = {.x = {}, .y = room(part.target_type(batch_size)), .key = room({DType::U32, {2}})};
  if (part.has_lengths()) data.lengths = room({DType::I32, {batch_size}});
  if (part.has_weights()) data.sample_weights = room({part.dtype(), {batch_size}});
  part.gather(numbers, {.inputs = x.raw(),
                        .targets = data.y.raw(),
                        .lengths = part.has_lengths() ? data.lengths.data<std::int32_t>().data() : nullptr,
                        .weights = part.has_weights() ? data.sample_weights.raw() : nullptr});
  data.x = x;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Array key = train::step_key(seed, static_cast<std::uint64_t>(step));
    std::memcpy(data.key.data<std::uint32_t>().data() + 2 * step, key.raw(), key.bytes());
  }
  return data;
}

void explain_job(const JobSource& source, const Shown& shown) {
  const Job job = read_job(source);
  // As a training has it: whole batches, as many in a call as there are.
  std::optional<data::Samples> samples;
  if (shown.profile || !data::fixed_input_shape(job.recipe)) samples.emplace(load_samples(job));
  const data::Dataset* part = samples ? &samples->train() : nullptr;
  if (part != nullptr && part->size() == 0)
    throw UserError("split", "the training part must hold samples", samples->describe(),
                    "[split] train = 0.7, or more rows");
  const std::int64_t batch_size = part ? std::min(job.fit.batch_size, part->size()) : job.fit.batch_size,
                     steps =
                         part ? std::min(job.fit.steps_per_call, part->size() / batch_size) : job.fit.steps_per_call;
  const bool weights = !job.recipe.weight.empty() || job.recipe.balance_classes;
  const ValueType x = part ? part->input_type(batch_size) : job.input_type(),
                  sample_y = data::target_type_of(job.recipe);
  const ValueType y = {sample_y.dtype, sample_y.shape.with_inserted(0, batch_size)};
  const nn::Layer model = job.make_model(x);
  const Tree<Array> params = model.init(job.fit.seed, job.recipe.dtype, job.fit.init);
  const train::StepOptions options =
      train::step_options(job.fit, part && part->has_lengths(), weights, model.init_buffers(job.recipe.dtype));
  const Tree<Array> state = job.fit.optimizer.init(params);
  const auto explained = [&](const train::Step& step, const CompileOptions& compile, const Tree<Array>& its_state,
                             const train::StepData& data) {
    Explained result{train::compile_step(step, compile), std::nullopt};
    if (shown.profile)
      result.profile = profile(result.program, step.arguments(params, its_state, options.buffers, data));
    return result;
  };
  const auto batches = [&](std::int64_t count) {
    return shown.profile ? first_batches(*part, batch_size, count, job.fit.seed) : train::StepData{};
  };
  const train::Step one = train::train_step(model, job.fit.loss, job.fit.optimizer, params, state, x, y, options);
  const Explained step = explained(steps > 1 ? train::many_steps(one, steps) : one,
                                   train::step_compile_options(job.fit.compile), state, batches(steps));
  const train::StepData batch = batches(1);
  const Explained prediction = explained(train::predict_step(model, params, x, options), job.fit.compile, {},
                                         {.x = batch.x, .lengths = batch.lengths});

  if (shown.json) {
    nlohmann::ordered_json out = {{"model", describe_model(job, params)},
                                  {"processor", cpu_name()},
                                  {"target", target_name_of(job.fit.compile)},
                                  {"parameters", nlohmann::ordered_json::object()}};
    params.for_each([&](const std::string& name, const Array& leaf) { out["parameters"][name] = leaf.type().str(); });
    out["steps_per_call"] = steps;
    out["training_step"] = as_json(step, shown);
    out["prediction"] = as_json(prediction, shown);
    print_json(out);
    return;
  }
  fmt::print("Model\n  {}\n", wrapped(describe_model(job, params), 2));
  params.for_each(
      [](const std::string& name, const Array& leaf) { fmt::print("  {:<24}{}\n", name, leaf.type().str()); });
  fmt::print("\nProcessor\n  {}, {}\n", cpu_name(), target_name_of(job.fit.compile));
  fmt::print("\nTraining step{}\n", steps > 1 ? fmt::format(", {} in a call", steps) : "");
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
