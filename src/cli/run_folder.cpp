#include "cli/run_folder.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "cli/output_guard.h"
#include "hotloop/error.h"
#include "io/files.h"
#include "io/json.h"

namespace hotloop::cli {

namespace fs = std::filesystem;

bool RunFolder::holds_run() const { return fs::exists(config()); }

void RunFolder::check_run() const {
  put_right();
  if (holds_run()) return;
  throw UserError("run", "RUN must be the folder of a run, with a config.toml",
                  path_.string() + (fs::exists(path_) ? " (no config.toml in it)" : " (no such folder)"),
                  "a folder that `hotloop train` wrote, e.g. runs/demand");
}

bool RunFolder::holds_model() const { return fs::exists(model()); }

RunFolder RunFolder::trained() const {
  check_run();
  if (holds_model()) return *this;
  if (is_outdone()) {
    fmt::print(stderr, "{} has completed no epoch yet: of the run that it replaces, {}\n", path_.string(),
               aside().string());
    return RunFolder(aside());
  }
  const bool diverged = read_metrics().value("status", "") == "non_finite_loss";
  throw UserError(
      "run", "RUN must have completed an epoch, whose parameters are in " + model().filename().string(),
      path_.string() + (diverged ? ", whose loss was not finite in the first epoch" : ", which has none yet"),
      diverged ? "a training with a smaller learning rate" : "hotloop train --resume " + path_.string());
}

bool RunFolder::is_vacant() const {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, none))
    if (!entry.path().filename().string().starts_with(io::temporary_prefix)) return false;
  return true;
}

void RunFolder::check_free(bool overwrite) const {
  if (is_vacant()) return;
  if (!holds_run() && !fs::exists(aside()))
    throw UserError("run", "the folder must be empty, or hold a run alone",
                    path_.string() + ", which holds other files", "--out with another name");
  if (!overwrite)
    throw UserError("run", "the folder must not hold a run yet", path_.string(),
                    "--resume " + path_.string() + " to go on with it, or --overwrite to replace it");
}

std::vector<fs::path> RunFolder::files() const {
  std::vector<fs::path> found;
  const auto add = [&](const fs::path& file) {
    if (fs::exists(fs::symlink_status(file))) found.push_back(file);
  };
  add(checkpoints());
  for (const char* name : {"model.safetensors", "history.csv", "metrics.json", "loss.svg", "forecast.svg", "phase.svg",
                           "report.html", "preparation.json", "baselines.json"})
    add(path_ / name);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) found.push_back(entry.path());
  add(config());
  return found;
}

bool RunFolder::owns(const fs::path& file) const {
  std::error_code none;
  return lies_in(file, checkpoints()) ||
         std::ranges::any_of(files(), [&](const fs::path& own) { return fs::equivalent(own, file, none); });
}

void RunFolder::remove_run() const {
  for (const fs::path& file : files()) fs::remove_all(file);
}

// Where config.toml is tells what was under way: it leaves as the last and comes back as the first, so that without it the folder aside holds a
// part of the run that it stands beside.

void RunFolder::set_aside() const {
  // Of a run that is not over and the one that it was to replace, one stays.
  if (is_outdone())
    bring_back();
  else
    drop_aside();
  try {
    fs::create_directory(aside());
    for (const fs::path& file : files()) fs::rename(file, aside() / file.filename());
  } catch (const fs::filesystem_error&) {
    recover();
    throw;
  }
}

void RunFolder::bring_back() const {
  const RunFolder old(aside());
  if (old.holds_run()) {
    fs::remove(config());
    remove_run();
    fs::rename(old.config(), config());
  }
  for (const fs::path& file : old.files()) fs::rename(file, path_ / file.filename());
  fs::remove_all(aside());
  io::remove_temporaries(path_);  // what a killed training was writing
}

void RunFolder::drop_aside() const {
  if (fs::exists(aside())) io::remove_folder_atomic(aside());
}

bool RunFolder::is_outdone() const { return RunFolder(aside()).holds_model() && !holds_model(); }

void RunFolder::recover() const {
  if (!fs::exists(aside())) return;
  if (!holds_run() || !RunFolder(aside()).holds_run())
    bring_back();
  else if (holds_model())
    drop_aside();
}

void RunFolder::put_right() const {
  if (!fs::exists(aside())) return;
  bool made = false;
  if (const auto lock = io::FolderLock::create(path_, "run", made)) recover();
}

void RunFolder::write(const fs::path& file, const std::string& text) const { io::write_file_atomic(file, text, "run"); }

nlohmann::ordered_json RunFolder::read_metrics() const {
  if (!fs::exists(metrics())) return nlohmann::ordered_json::object();
  const std::string text = io::read_file(metrics(), "run");
  try {
    return io::parse_json<nlohmann::ordered_json>(text);
  } catch (const nlohmann::json::exception& e) {
    throw UserError("run", metrics().string() + " must be JSON", e.what());
  }
}

data::Preparation RunFolder::read_preparation() const {
  return data::Preparation::parse(io::read_file(preparation(), "run"), preparation().string());
}

ClaimedFolder claim_folder(const fs::path& path, bool overwrite) {
  RunFolder folder(path);
  bool made = false;
  std::optional<io::FolderLock> lock = io::FolderLock::create(path, "run", made);
  if (!lock) io::refuse_locked(path, "run");
  folder.recover();
  folder.check_free(overwrite);
  return {std::move(folder), std::move(*lock), made};
}

ClaimedFolder claim_next_folder(const fs::path& base) {
  for (int n = 1;; ++n) {
    RunFolder folder(n == 1 ? base : fs::path(base.string() + "-" + std::to_string(n)));
    // One that holds something is not even locked for a moment, in which its own program would find it in use.
    if (!folder.is_vacant()) continue;
    bool made = false;
    std::optional<io::FolderLock> lock = io::FolderLock::create(folder.path(), "run", made);
    if (lock && folder.is_vacant()) return {std::move(folder), std::move(*lock), made};
  }
}

}  // namespace hotloop::cli
