#include <fmt/format.h>

#include "cli/command.h"
#include "cli/imported_model.h"
#include "cli/report.h"
#include "hotloop/rtneural.h"
#include "io/files.h"

namespace hotloop::cli {
namespace {

struct ImportCommand {
  std::string file, out;
  bool json = false;
};

void import_model(const ImportCommand& options) {
  const RtneuralModel found = load_rtneural(options.file);
  std::int64_t numbers = 0;
  found.params.for_each([&](const std::string&, const Array& leaf) { numbers += leaf.size(); });
  const std::string origin = std::filesystem::path(options.file).filename().string() + ", a model of RTNeural";
  const std::filesystem::path out = io::without_slash(options.out);
  write_imported_model(out, found.params, found.features, found.toml, origin);
  if (options.json)
    print_json({{"out", out.string()}, {"features", found.features}, {"parameters", numbers}});
  else
    fmt::print(
        "{0}/model.toml and model.safetensors written: input of width {1}, {2} parameters.\n"
        "As plain C: hotloop export {0} -o {0}_c\n",
        out.string(), found.features, grouped(numbers));
}

}  // namespace

void command_import(CLI::App& app) {
  CLI::App* command = app.add_subcommand("import", "Take over a model from RTNeural's JSON");
  command->footer(
      "\nThe folder gets the layers as a configuration has them, model.toml, and the\n"
      "parameters, model.safetensors. `hotloop export FOLDER` writes it as plain C.");
  auto options = std::make_shared<ImportCommand>();
  command->add_option("FILE", options->file, "JSON file of RTNeural, e.g. amp.json")->required();
  command->add_option("-o,--out", options->out, "folder to write, which must not exist")->required();
  command->add_flag("--json", options->json, "tell what was done as JSON");
  command->callback([options] { import_model(*options); });
}

}  // namespace hotloop::cli
