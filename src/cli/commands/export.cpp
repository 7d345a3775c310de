#include <fmt/format.h>

#include "cli/command.h"
#include "cli/job_options.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "hotloop/checkpoint.h"
#include "hotloop/error.h"
#include "hotloop/export.h"
#include "io/files.h"

namespace hotloop::cli {
namespace {

struct ExportCommand {
  std::string run, out, name = "model", target = "host";
  bool json = false;
};

void export_run(const ExportCommand& options) {
  const RunFolder folder{std::filesystem::path(options.run)};
  folder.check_run();
  JobSource source;
  source.path = folder.config();
  const Job job = read_job(source);
  const std::string prepared = io::read_file(folder.preparation(), "export");
  const data::Preparation preparation = data::Preparation::parse(prepared, folder.preparation().string());
  const Shape sample = preparation.input_shape();
  if (sample.rank() != 2)
    throw UserError("export", "the model must take a sequence of features", "samples of shape " + sample.str());
  const ValueType x{preparation.recipe().dtype, sample.with_inserted(0, 1)};
  const nn::Layer model = job.make_model(x);
  const train::ModelArrays arrays =
      train::load_model(folder.model(), model.init(job.fit.seed, x.dtype, job.fit.init), model.init_buffers(x.dtype));

  ExportOptions made;
  made.name = options.name;
  made.target = options.target;
  made.stream.buffers = arrays.buffers;
  const ExportedC files = export_c(model, arrays.params, sample[1], made);
  io::write_folder_atomic(
      options.out,
      {{options.name + ".h", files.header}, {options.name + ".c", files.source}, {"preparation.json", prepared}},
      "export");
  const std::int64_t voice = files.scratch_bytes + 2 * files.state_bytes;
  if (options.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"out", options.out},
                                              {"name", options.name},
                                              {"features", sample[1]},
                                              {"weight_bytes", files.weight_bytes},
                                              {"voice_bytes", voice}}
                           .dump(2));
  else
    fmt::print(
        "{0}/{1}.h and {1}.c written: {2} bytes of weights, {3} a voice.\n"
        "The step takes {4} prepared features; preparation.json tells how they are made.\n"
        "Compile with: cc -O3 -ffp-contract=off -fno-math-errno -c {1}.c\n",
        options.out, options.name, grouped(files.weight_bytes), grouped(voice), sample[1]);
}

}  // namespace

void command_export(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export", "Write a run's model as plain C, one step at a time");
  command->footer(
      "\nThe folder gets a header and a source that need no library: no allocation,\n"
      "no lock, fit for real time. See docs/streaming.md for how they are called.");
  auto options = std::make_shared<ExportCommand>();
  command->add_option("RUN", options->run, "folder of a run, e.g. runs/demand")->required();
  command->add_option("-o,--out", options->out, "folder to write, which must not exist")->required();
  command->add_option("--name", options->name, "prefix of every name in C")->capture_default_str();
  command->add_option("--target", options->target, "whose rounding: host, avx512, avx2 or portable")
      ->capture_default_str();
  command->add_flag("--json", options->json, "tell what was done as JSON");
  command->callback([options] { export_run(*options); });
}

}  // namespace hotloop::cli
