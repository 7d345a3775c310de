#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/command.h"
#include "cli/imported_model.h"
#include "cli/job.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "cli/shown_metrics.h"
#include "hotloop/checkpoint.h"
#include "hotloop/error.h"
#include "hotloop/io.h"

namespace hotloop::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct Statistics {
  double least = std::numeric_limits<double>::infinity(), most = -least, mean = 0, deviation = 0;
  std::int64_t non_finite = 0;
};

Statistics statistics_of(const Array& array) {
  Statistics s;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < array.size(); ++i) {
    const double v = array.at(i);
    if (!std::isfinite(v)) {
      ++s.non_finite;
      continue;
    }
    s.least = std::min(s.least, v);
    s.most = std::max(s.most, v);
    // Welford 1962: the mean and the sum of squares around it, one number at a time.
    const double before = v - s.mean;
    s.mean += before / static_cast<double>(++count);
    s.deviation += before * (v - s.mean);
  }
  s.deviation = count > 0 ? std::sqrt(s.deviation / static_cast<double>(count)) : 0;
  if (count == 0) s.least = s.most = 0;
  return s;
}

ordered_json tensors_json(const io::Checkpoint& file) {
  ordered_json out = ordered_json::array();
  for (const auto& [name, array] : file.tensors) {
    const Statistics s = statistics_of(array);
    out.push_back({{"name", name},
                   {"dtype", name_of(array.dtype())},
                   {"shape", array.shape().vec()},
                   {"min", s.least},
                   {"max", s.most},
                   {"mean", s.mean},
                   {"std", s.deviation},
                   {"non_finite", s.non_finite}});
  }
  return out;
}

void print_tensors(const io::Checkpoint& file) {
  std::size_t width = 20;
  std::int64_t count = 0, bytes = 0;
  for (const auto& [name, array] : file.tensors) {
    width = std::max(width, std::min<std::size_t>(name.size(), 30));
    count += array.size();
    bytes += static_cast<std::int64_t>(array.bytes());
  }
  fmt::print("  {:<{}} {:<14}{:>10}{:>10}{:>10}\n", "tensor", width, "type", "min", "mean", "max");
  for (const auto& [name, array] : file.tensors) {
    const Statistics s = statistics_of(array);
    fmt::print("  {:<{}} {:<14}{:>10.3g}{:>10.3g}{:>10.3g}{}\n", name, width, array.type().str(), s.least, s.mean,
               s.most, s.non_finite > 0 ? fmt::format("  {} not finite", s.non_finite) : "");
  }
  fmt::print("  {} tensors, {} numbers, {} bytes\n", file.tensors.size(), grouped(count), grouped(bytes));
}

// The last lines of the history, and the best one.
void print_history(const std::vector<train::EpochRecord>& history, std::int64_t best_epoch) {
  fmt::print("  {:>7}{:>16}{:>16}{:>10}\n", "epoch", "training loss", "validation", "seconds");
  constexpr std::size_t shown = 10;
  const std::size_t first = history.size() > shown ? history.size() - shown : 0;
  if (first > 0) fmt::print("  {:>7}\n", "...");
  for (std::size_t i = first; i < history.size(); ++i)
    fmt::print("  {:>7}{:>16.6f}{:>16.6f}{:>10.3f}{}\n", history[i].epoch, history[i].train_loss, history[i].validation,
               history[i].seconds, history[i].epoch == best_epoch ? "  best" : "");
}

void inspect_file(const fs::path& path, bool json) {
  const io::Checkpoint file = io::load_safetensors(path);
  if (json) {
    print_json({{"file", path.string()}, {"metadata", file.metadata}, {"tensors", tensors_json(file)}});
    return;
  }
  fmt::print("{}\n", path.string());
  for (const auto& [key, value] : file.metadata) fmt::print("  {}: {}\n", key, value);
  print_tensors(file);
}

ordered_json history_json(const std::vector<train::EpochRecord>& history) {
  ordered_json out = ordered_json::array();
  for (const train::EpochRecord& r : history)
    out.push_back({{"epoch", r.epoch},
                   {"train_loss", r.train_loss},
                   {"validation", r.validation},
                   {"metrics", metrics_json(r)},
                   {"seconds", r.seconds}});
  return out;
}

void inspect_run(const RunFolder& folder, bool json) {
  folder.check_run();
  const Job job = read_job({.path = folder.config()});
  const ordered_json metrics = folder.read_metrics();
  const fs::path latest = train::latest_checkpoint(folder.checkpoints());
  std::optional<train::TrainingState> state;
  if (!latest.empty()) state = train::load_checkpoint(latest);
  std::optional<io::Checkpoint> model;
  if (fs::exists(folder.model())) model = io::load_safetensors(folder.model());

  if (json) {
    ordered_json out = {{"run", folder.path().string()}, {"config", job.text}, {"metrics", metrics}};
    if (state)
      out["checkpoint"] = {{"path", latest.string()},
                           {"epoch", state->epoch},
                           {"step", state->step},
                           {"num_steps", state->num_steps},
                           {"best_epoch", state->best_epoch},
                           {"history", history_json(state->history)}};
    if (model) out["tensors"] = tensors_json(*model);
    print_json(out);
    return;
  }
  fmt::print("Run      {}\n", folder.path().string());
  fmt::print("Status   {}\n", metrics.contains("status") ? metrics["status"].get<std::string>() : "not ended yet");
  if (metrics.contains("test") && metrics["test"].is_number())
    fmt::print("Test     {} {}\n", job.fit.metric.name(), score_text(metrics["test"].get<double>()));
  if (folder.is_outdone()) fmt::print("Replaces {}, once an epoch is over\n", folder.aside().string());
  fmt::print("Data     {}, {} {}, {} inputs\n", job.data_file.string(),
             job.recipe.targets.size() == 1 ? "target" : "targets", fmt::join(job.recipe.targets, ", "),
             job.recipe.inputs.size());
  fmt::print("Train    {}, {}, batches of {}, {} epochs, seed {}\n", job.loss_name, job.optimizer_name,
             job.fit.batch_size, job.fit.epochs, job.fit.seed);
  if (state) {
    fmt::print("Position after step {} of epoch {}; {} steps in all ({})\n", state->step, state->epoch,
               grouped(state->num_steps), latest.filename().string());
    fmt::print("\nHistory, the validation as the loop sees it\n");
    print_history(state->history, state->best_epoch);
  }
  if (model) {
    fmt::print("\nParameters of the best epoch, model.safetensors\n");
    print_tensors(*model);
  }
}

void inspect(const fs::path& path, bool json) {
  if (fs::is_directory(path)) {
    const RunFolder run(path);
    if (!run.holds_run() && holds_imported_model(path)) return inspect_file(path / "model.safetensors", json);
    return inspect_run(run, json);
  }
  const auto refuse = [&](const std::string& remedy) {
    throw UserError("inspect", "RUN|FILE must be the folder of a run or a .safetensors file", path.string(), remedy);
  };
  const std::string extension = path.extension().string();
  if (extension == ".toml") refuse("hotloop export-config " + path.string() + ", which shows every setting");
  for (const char* table : {".csv", ".npy", ".npz", ".parquet"})
    if (extension == table) refuse("hotloop new " + path.string() + " --target COLUMN, which looks at its columns");
  inspect_file(path, json);
}

}  // namespace

void command_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "Show what a run or a checkpoint holds");
  command->footer("\nOf a run: its state, the end of its history and its parameters.\nOf a file: its tensors.");
  auto path = std::make_shared<fs::path>();
  auto json = std::make_shared<bool>(false);
  command->add_option("RUN|FILE", *path, "folder of a run or of an imported model, or a\n.safetensors file")
      ->required();
  command->add_flag("--json", *json, "print it as JSON");
  command->callback([path, json] { inspect(*path, *json); });
}

}  // namespace hotloop::cli
