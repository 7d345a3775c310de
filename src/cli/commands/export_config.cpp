#include <fmt/format.h>
#include <array>

#include "cli/command.h"
#include "cli/job_options.h"
#include "cli/output_guard.h"
#include "io/files.h"

namespace hotloop::cli {
namespace {

struct ExportConfigCommand {
  std::shared_ptr<JobSource> source;
  std::string out;
  bool overwrite = false;
};

void export_config(const ExportConfigCommand& options) {
  const std::filesystem::path out = options.out;
  if (options.out.empty()) {
    fmt::print("{}", text_for_folder(*options.source, "."));
    return;
  }
  check_output_file("export-config", out, std::array{options.source->path}, options.overwrite);
  io::write_file_atomic(out, text_for_folder(*options.source, out.parent_path()), "export-config");
  fmt::print("{} written.\n", options.out);
}

}  // namespace

void command_export_config(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export-config", "Print a configuration with every default");
  command->footer(
      "\nThe output is a configuration again, with one line about each key. It names the\n"
      "table as seen from the file of -o, or else from the working directory.");
  auto options = std::make_shared<ExportConfigCommand>();
  options->source = add_job_options(*command);
  command->add_option("-o,--out", options->out, "file to write [standard output]");
  command->add_flag("--overwrite", options->overwrite, "replace the file");
  command->callback([options] { export_config(*options); });
}

}  // namespace hotloop::cli
