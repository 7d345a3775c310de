#include <fmt/format.h>

#include <array>

#include "cli/command.h"
#include "cli/imported_model.h"
#include "cli/job_options.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "deploy/exported_step.h"
#include "hotloop/checkpoint.h"
#include "hotloop/error.h"
#include "hotloop/export.h"
#include "io/files.h"

namespace hotloop::cli {
namespace {

struct ExportCommand {
  std::string run, out, name = "model", target = "host";
  bool overwrite = false, json = false;
};

// What is exported: a model and, of a run, the way from a table to the features of a step.
struct Exported {
  nn::Layer model;
  Tree<Array> params, buffers;
  std::int64_t features = 0;
  std::string preparation;  // empty for a model without a run
};

Exported read_run(const RunFolder& folder) {
  JobSource source;
  source.path = folder.config();
  const Job job = read_job(source);
  const std::string prepared = io::read_file(folder.preparation(), "export");
  const data::Preparation preparation = data::Preparation::parse(prepared, folder.preparation().string());
  const Shape sample = preparation.input_shape();
  if (sample.rank() != 2)
    throw UserError("export", "the model must take a sequence of features", "samples of shape " + sample.str(),
                    "hotloop predict, which takes any model");
  const ValueType x{preparation.recipe().dtype, sample.with_inserted(0, 1)};
  const nn::Layer model = job.make_model(x);
  const train::ModelArrays arrays =
      train::load_model(folder.model(), model.init(job.fit.seed, x.dtype, job.fit.init), model.init_buffers(x.dtype));
  return {model, arrays.params, arrays.buffers, sample[1], prepared};
}

Exported read_model_to_export(const std::filesystem::path& path) {
  const RunFolder folder{path};
  if (folder.holds_run() || !holds_imported_model(path)) return read_run(folder.trained());
  const ImportedModel imported = read_imported_model(path);
  return {imported.model, imported.params, {}, imported.features, ""};
}

void export_run(const ExportCommand& options) {
  const std::filesystem::path out = io::without_slash(options.out);
  std::error_code none;
  if (std::filesystem::equivalent(out, options.run, none))
    throw UserError("export", "the folder to write must be another one than the model's", out.string(), "another name");
  const bool replace = options.overwrite && std::filesystem::is_directory(out);
  if (!replace) io::refuse_existing(out, "export", "another name, or --overwrite");  // before the work
  const Exported exported = read_model_to_export(options.run);
  ExportOptions made;
  made.name = options.name;
  made.target = options.target;
  made.stream.buffers = exported.buffers;
  const ExportedC files = export_c(exported.model, exported.params, exported.features, made);
  io::NamedBytes written = {{options.name + ".h", files.header}, {options.name + ".c", files.source}};
  if (!files.object.empty()) written.emplace_back(options.name + ".o", files.object);
  if (!exported.preparation.empty()) written.emplace_back("preparation.json", exported.preparation);
  if (replace)  // an object that is not made for these targets goes
    io::replace_files(out, written, std::array{options.name + ".o"}, "export");
  else
    io::write_folder_atomic(out, written, "export");
  if (options.json)
    print_json({{"out", out.string()},
                {"name", options.name},
                {"targets", files.targets},
                {"features", exported.features},
                {"weight_bytes", files.weight_bytes},
                {"voice_bytes", files.voice_bytes}});
  else
    fmt::print(
        "{0}/{1}.h, {1}.c{2} written for {3}:\n"
        "{4}\n"
        "{5}\n"
        "  cc {6} -c {1}.c\n",
        out.string(), options.name, files.object.empty() ? "" : fmt::format(" and {}.o", options.name),
        fmt::join(files.targets, ", "),
        wrapped(fmt::format("{} bytes of weights, {} a voice. The step takes {} {}.", grouped(files.weight_bytes),
                            grouped(files.voice_bytes), exported.features,
                            (exported.preparation.empty() ? std::string() : "prepared ") +
                                (exported.features == 1 ? "feature" : "features") +
                                (exported.preparation.empty() ? "" : "; preparation.json tells how they are made")),
                0),
        files.object.empty() ? "Compile with:" : fmt::format("Link with {}.o, or compile the source:", options.name),
        deploy::compile_flags(files.targets.front()));
}

}  // namespace

void command_export(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export", "Write a model for C, one step at a time");
  command->footer(
      "\nThe folder gets a header, an object file and a C source that need no library:\n"
      "no allocation, no lock, fit for real time. With several targets, as in\n"
      "x86-64-v3,x86-64-v4, the object takes the best that its processor runs.\n"
      "See docs/streaming.md for how they are called.");
  auto options = std::make_shared<ExportCommand>();
  command->add_option("RUN", options->run, "folder of a run or of an imported model")->required();
  command->add_option("-o,--out", options->out, "folder to write, which must not exist")->required();
  command->add_option("--name", options->name, "prefix of every name in C")->capture_default_str();
  command->add_option("--target", options->target, "host, x86-64-v2, x86-64-v3, x86-64-v4 or aarch64")
      ->capture_default_str();
  command->add_flag("--overwrite", options->overwrite, "replace files in a folder that is there");
  command->add_flag("--json", options->json, "tell what was done as JSON");
  command->callback([options] { export_run(*options); });
}

}  // namespace hotloop::cli
