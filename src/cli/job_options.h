// Options that several commands share: a configuration, and what replaces its values.
#pragma once

#include <memory>

#include "cli/command.h"
#include "cli/job.h"

namespace hotloop::cli {

struct JobOptions {
  std::string config;
  JobOverrides overrides;
};

inline std::shared_ptr<JobOptions> add_job_options(CLI::App& command) {
  auto options = std::make_shared<JobOptions>();
  command.add_option("CONFIG", options->config, "TOML file, e.g. examples/demand.toml")->required();
  command.add_option("--epochs", options->overrides.epochs, "instead of [train] epochs");
  command.add_option("--seed", options->overrides.seed, "instead of [train] seed");
  command.add_option("--threads", options->overrides.threads, "instead of [train] threads; 0: all");
  command.add_option("--batch-size", options->overrides.batch_size, "instead of [train] batch_size");
  command.add_option("--backend", options->overrides.backend, "llvm, c or interp");
  command.add_option("--data", options->overrides.data_file, "table instead of [data] file");
  return options;
}

}  // namespace hotloop::cli
