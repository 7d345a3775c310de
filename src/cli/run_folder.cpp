#include "cli/run_folder.h"

#include "hotloop/error.h"
#include "io/files.h"

namespace hotloop::cli {

namespace fs = std::filesystem;

bool RunFolder::holds_run() const { return fs::exists(config()); }

void RunFolder::check_run() const {
  if (holds_run()) return;
  throw UserError("run", "RUN must be the folder of a run, with a config.toml",
                  path_.string() + (fs::exists(path_) ? " (no config.toml in it)" : " (no such folder)"),
                  "a folder that `hotloop train` wrote, e.g. runs/demand");
}

void RunFolder::remove_run() const {
  fs::remove_all(checkpoints());
  for (const char* name : {"config.toml", "model.safetensors", "history.csv", "metrics.json", "loss.svg",
                           "forecast.svg", "phase.svg", "report.html", "preparation.json", "baselines.json"})
    fs::remove(path_ / name);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) fs::remove(entry.path());
}

void RunFolder::write(const fs::path& file, const std::string& text) const { io::write_file_atomic(file, text, "run"); }

nlohmann::ordered_json RunFolder::read_metrics() const {
  if (!fs::exists(metrics())) return nlohmann::ordered_json::object();
  const std::string text = io::read_file(metrics(), "run");
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    throw UserError("run", metrics().string() + " must be JSON", e.what());
  }
}

data::Preparation RunFolder::read_preparation() const {
  return data::Preparation::parse(io::read_file(preparation(), "run"), preparation().string());
}

RunFolder next_free_folder(const fs::path& base) {
  RunFolder folder(base);
  for (int n = 2; folder.holds_run(); ++n) folder = RunFolder(base.string() + "-" + std::to_string(n));
  return folder;
}

}  // namespace hotloop::cli
