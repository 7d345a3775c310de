#include "cli/job_options.h"

#include <sstream>

namespace hotloop::cli {
namespace {

// An option that stands for an assignment: --epochs 5 for --set train.epochs=5.
template <class T> void add_alias(CLI::App& command, const std::shared_ptr<JobSource>& source,
                                  const std::string& option, const std::string& key, const std::string& doc) {
  command.add_option_function<T>(
      option,
      [source, key](const T& value) {
        std::ostringstream text;
        text << value;
        source->assignments.push_back(key + "=" + text.str());
      },
      doc);
}

}  // namespace

void add_machine_overrides(CLI::App& command, const std::shared_ptr<JobSource>& source) {
  add_alias<std::int64_t>(command, source, "--threads", "train.threads", "instead of [train] threads; 0: all");
  add_alias<std::string>(command, source, "--backend", "train.backend", "llvm, c or interp");
}

void add_run_overrides(CLI::App& command, const std::shared_ptr<JobSource>& source) {
  add_machine_overrides(command, source);
  command.add_option("--data", source->data_file, "table instead of [data] file");
}

void add_overrides(CLI::App& command, const std::shared_ptr<JobSource>& source) {
  add_alias<std::int64_t>(command, source, "--epochs", "train.epochs", "instead of [train] epochs");
  add_alias<std::int64_t>(command, source, "--seed", "train.seed", "instead of [train] seed");
  add_alias<std::int64_t>(command, source, "--batch-size", "train.batch_size", "instead of [train] batch_size");
  add_alias<std::string>(command, source, "--precision", "train.precision",
                         "f32, f64 or bf16, instead of [train] precision");
  add_run_overrides(command, source);
  command
      .add_option_function<std::vector<std::string>>(
          "--set",
          [source](const std::vector<std::string>& given) {
            source->assignments.insert(source->assignments.end(), given.begin(), given.end());
          },
          "any key of the configuration, e.g.\noptimizer.learning_rate=1e-4 or model.0.hidden=64")
      ->allow_extra_args(false)
      ->type_name("TABLE.KEY=VALUE");
}

std::shared_ptr<JobSource> add_job_options(CLI::App& command) {
  auto source = std::make_shared<JobSource>();
  command.add_option("CONFIG", source->path, "TOML file, e.g. examples/demand.toml")->required();
  add_overrides(command, source);
  return source;
}

}  // namespace hotloop::cli
