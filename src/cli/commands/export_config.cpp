#include <fmt/format.h>

#include "cli/command.h"
#include "cli/job_options.h"

namespace hotloop::cli {

void command_export_config(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export-config", "Print a configuration with every default");
  command->footer("\nThe output is a configuration again, with one line about each key.");
  const std::shared_ptr<JobSource> source = add_job_options(*command);
  command->callback([source] { fmt::print("{}", read_job(*source).text); });
}

}  // namespace hotloop::cli
