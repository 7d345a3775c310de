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
//
// A program that is killed leaves all of these whole, as they were at some time before.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "hotloop/data.h"

namespace hotloop::cli {

class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }
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
  // Deletes what a run leaves behind, and nothing else.
  void remove_run() const;

  void write(const std::filesystem::path& file, const std::string& text) const;
  nlohmann::ordered_json read_metrics() const;  // an empty object if there are none yet
  data::Preparation read_preparation() const;

 private:
  std::filesystem::path path_;
};

// The first of base, base-2, base-3, ... that holds no run.
RunFolder next_free_folder(const std::filesystem::path& base);

}  // namespace hotloop::cli
