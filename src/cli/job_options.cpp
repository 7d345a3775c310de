#include "cli/job_options.h"

#include "cli/run_folder.h"

namespace hotloop::cli {
namespace {

// An option that stands for an assignment: --epochs 5 for --set train.epochs=5. The configuration alone judges the value, whatever its type.
void add_alias(CLI::App& command, const std::shared_ptr<JobSource>& source, const std::string& option,
               const std::string& key, const std::string& type, const std::string& doc) {
  command
      .add_option_function<std::string>(
          option,
          [source, option, key](const std::string& value) {
            source->assignments.push_back({key + "=" + value, option + " " + value});
          },
          doc)
      ->type_name(type);
}

}  // namespace

void add_machine_overrides(CLI::App& command, const std::shared_ptr<JobSource>& source) {
  add_alias(command, source, "--device", "train.device", "TEXT", "auto, cpu or cuda");
  add_alias(command, source, "--threads", "train.threads", "INT", "instead of [train] threads; 0: all");
  add_alias(command, source, "--backend", "train.backend", "TEXT", "llvm, c or interp");
}

void add_run_overrides(CLI::App& command, const std::shared_ptr<JobSource>& source) {
  add_machine_overrides(command, source);
  command.add_option("--data", source->data_file, "table instead of [data] file");
}

void add_overrides(CLI::App& command, const std::shared_ptr<JobSource>& source) {
  add_alias(command, source, "--epochs", "train.epochs", "INT", "instead of [train] epochs");
  add_alias(command, source, "--seed", "train.seed", "INT", "instead of [train] seed");
  add_alias(command, source, "--batch-size", "train.batch_size", "INT", "instead of [train] batch_size");
  add_alias(command, source, "--precision", "train.precision", "TEXT",
            "f32, f64 or bf16, instead of [train] precision");
  add_run_overrides(command, source);
  command
      .add_option_function<std::vector<std::string>>(
          "--set",
          [source](const std::vector<std::string>& given) {
            for (const std::string& text : given) source->assignments.push_back({text, "--set " + text});
          },
          "any key of the configuration, e.g.\noptimizer.learning_rate=1e-4 or model.0.hidden=64")
      ->allow_extra_args(false)
      ->type_name("TABLE.KEY=VALUE");
}

std::shared_ptr<JobSource> add_job_options(CLI::App& command) {
  auto source = std::make_shared<JobSource>();
  command.add_option("CONFIG", source->path, "TOML file, e.g. examples/demand.toml, or the folder\nof a run")
      ->required()
      ->transform([](const std::string& given) {
        const RunFolder folder{given};
        return folder.holds_run() ? folder.config().string() : given;
      });
  add_overrides(command, source);
  return source;
}

}  // namespace hotloop::cli
