// What a training run leaves behind:
//
//   config.toml          the configuration with every default, as it was trained
//   model.safetensors    parameters and buffers of the best epoch so far
//   preparation.json     how a table becomes samples, with all that was fitted on the training rows
//   baselines.json       ridge regressions fitted on the training rows, if the configuration has any
//   checkpoints/         states to go on from, see hotloop/checkpoint.h
//   history.csv          one line an epoch; events.out.tfevents.* the same for TensorBoard
//   metrics.json         the results, and where they were computed and in what time
//   loss.svg forecast.svg report.html       pictures, and one page with everything
//   .replaced/           the run that was there before, until the one that replaces it has a model
//
// A program that is killed leaves all of these whole, as they were at some time before.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hotloop/data.h"
#include "io/files.h"

namespace hotloop::cli {

class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }
  // What the paths in config.toml are seen from: of a run that is aside the folder that it had.
  std::filesystem::path home() const { return path_.filename() == replaced ? path_.parent_path() : path_; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path model() const { return path_ / "model.safetensors"; }
  std::filesystem::path preparation() const { return path_ / "preparation.json"; }
  std::filesystem::path baselines() const { return path_ / "baselines.json"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path history() const { return path_ / "history.csv"; }
  std::filesystem::path metrics() const { return path_ / "metrics.json"; }
  std::filesystem::path report() const { return path_ / "report.html"; }

  bool holds_run() const;  // whether there is a configuration
  // UserError with what there is instead, unless holds_run().
  void check_run() const;
  // Whether there are parameters of an epoch.
  bool holds_model() const;
  // The run to work with: this one once it holds a model, before that the one aside, of which it tells on stderr. UserError if neither does.
  RunFolder trained() const;
  // Whether there is nothing in it, but for what a killed program left of a file, or no such folder.
  bool is_vacant() const;
  // UserError unless a new run may be written to it: it is vacant, or holds a run that is to be replaced.
  void check_free(bool overwrite) const;
  // Whether the file, by whatever name, is one that the run consists of.
  bool owns(const std::filesystem::path& file) const;
  // Deletes what a run leaves behind, and nothing else.
  void remove_run() const;

  // The run makes way for another one, and comes back in its place or goes for good; one with a model not before the other one has its own.
  void set_aside() const;
  void bring_back() const;
  void drop_aside() const;
  // Whether there is one aside that holds a model, as the one in its place does not.
  bool is_outdone() const;
  std::filesystem::path aside() const { return path_ / replaced; }
  // What a program that was killed had begun of this is brought to its end.
  void recover() const;
  // The same for whoever comes by and does not hold the folder; nothing while a training does.
  void put_right() const;

  void write(const std::filesystem::path& file, const std::string& text) const;
  nlohmann::ordered_json read_metrics() const;  // an empty object if there are none yet
  data::Preparation read_preparation() const;

 private:
  static constexpr const char* replaced = ".replaced";
  // That there are of the run, checkpoints' folder too; config.toml last.
  std::vector<std::filesystem::path> files() const;

  std::filesystem::path path_;
};

// A folder that this process alone writes to, for a new run.
struct ClaimedFolder {
  RunFolder folder;
  io::FolderLock lock;
  bool made = false;  // the folder was not there
};

// `path`, as check_free() says.
ClaimedFolder claim_folder(const std::filesystem::path& path, bool overwrite);
// The first of base, base-2, base-3, ... that is vacant, and that no other process has claimed.
ClaimedFolder claim_next_folder(const std::filesystem::path& base);

}  // namespace hotloop::cli
