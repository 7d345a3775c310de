#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/job_options.h"
#include "cli/machine.h"
#include "cli/report.h"
#include "hotloop/train.h"

namespace hotloop::cli {
namespace {

struct Shown {
  bool graph = false, kernel = false, json = false;
};

nlohmann::ordered_json as_json(const Executable& program, const Shown& shown) {
  nlohmann::ordered_json out = {{"explanation", program.explain()}};
  if (shown.graph) out["graph"] = program.graph_text();
  if (shown.kernel) out["kernel"] = program.kernel_text();
  return out;
}

void print(const Executable& program, const Shown& shown) {
  fmt::print("{}", program.explain());
  if (shown.graph) fmt::print("\n{}\n", program.graph_text());
  if (shown.kernel) fmt::print("\n{}\n", program.kernel_text());
}

void explain_job(const JobSource& source, const Shown& shown) {
  const Job job = read_job(source);
  const ValueType x = job.input_type(), sample_y = data::target_type_of(job.recipe);
  const ValueType y = {sample_y.dtype, sample_y.shape.with_inserted(0, job.fit.batch_size)};
  const nn::Layer model = job.make_model(x);
  const Tree<Array> params = model.init(job.fit.seed, job.recipe.dtype, job.fit.init);
  const train::StepOptions options = {
      .key = true, .class_weights = job.fit.class_weights, .buffers = model.init_buffers(job.recipe.dtype)};
  const auto compiled = [&](const train::Step& step) {
    CompileOptions compile_options = job.fit.compile;
    compile_options.batch_axes = step.batch_axes;
    return compile(step.graph(), compile_options);
  };
  const Executable step = compiled(
      train::train_step(model, job.fit.loss, job.fit.optimizer, params, job.fit.optimizer.init(params), x, y, options));
  const Executable prediction = compiled(train::predict_step(model, params, x, options));

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
      "\nCompiles the training step and the prediction. The table is read only\nwhere the features depend on it.");
  const std::shared_ptr<JobSource> source = add_job_options(*command);
  auto shown = std::make_shared<Shown>();
  command->add_flag("--graph", shown->graph, "also print the graphs after the passes");
  command->add_flag("--kernel", shown->kernel, "also print the kernel IR");
  command->add_flag("--json", shown->json, "print it as JSON");
  command->callback([source, shown] { explain_job(*source, *shown); });
}

}  // namespace hotloop::cli
