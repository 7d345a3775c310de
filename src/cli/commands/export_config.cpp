#include <cstdio>

#include "cli/command.h"
#include "cli/job.h"

namespace hotloop::cli {

void command_export_config(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export-config", "Print a configuration with every default");
  command->footer("\nThe output is a configuration again, with one line about each key.");
  auto path = std::make_shared<std::string>();
  command->add_option("CONFIG", *path, "TOML file, e.g. examples/demand.toml")->required();
  command->callback([path] { std::fputs(read_job(*path).text.c_str(), stdout); });
}

}  // namespace hotloop::cli
