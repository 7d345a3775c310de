#include <fmt/format.h>

#include "cli/command.h"
#include "cli/job_options.h"
#include "cli/report.h"
#include "hotloop/train.h"

namespace hotloop::cli {
namespace {

struct Shown {
  bool graph = false, kernel = false;
};

void show(const Executable& program, const Shown& shown) {
  fmt::print("{}", program.explain());
  if (shown.graph) fmt::print("\n{}\n", program.graph_text());
  if (shown.kernel) fmt::print("\n{}\n", program.kernel_text());
}

void explain_job(const JobOptions& options, const Shown& shown) {
  const Job job = read_job(options.config, options.overrides);
  const nn::Layer model = job.make_model();
  const Tree<Array> params = model.init(job.fit.seed, job.window.dtype, job.fit.init);
  const ValueType x = job.input_type(), y = {job.window.dtype, {job.fit.batch_size, 1}};
  fmt::print("Model\n  {}\n", describe_model(job, params));
  params.for_each(
      [](const std::string& name, const Array& leaf) { fmt::print("  {:<24}{}\n", name, leaf.type().str()); });

  const auto compiled = [&](const train::Step& step) {
    CompileOptions compile_options = job.fit.compile;
    compile_options.batch_axes = step.batch_axes;
    return compile(step.graph(), compile_options);
  };
  fmt::print("\nTraining step\n");
  show(
      compiled(train::train_step(model, job.fit.loss, job.fit.optimizer, params, job.fit.optimizer.init(params), x, y)),
      shown);
  fmt::print("\nPrediction\n");
  show(compiled(train::predict_step(model, params, x)), shown);
}

}  // namespace

void command_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Show what a configuration compiles to");
  command->footer("\nCompiles the training step and the prediction. The table is not read.");
  const std::shared_ptr<JobOptions> options = add_job_options(*command);
  auto shown = std::make_shared<Shown>();
  command->add_flag("--graph", shown->graph, "also print the graphs after the passes");
  command->add_flag("--kernel", shown->kernel, "also print the kernel IR");
  command->callback([options, shown] { explain_job(*options, *shown); });
}

}  // namespace hotloop::cli
