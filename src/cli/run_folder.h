// What a training run leaves behind: config.toml, model.safetensors, history.csv, metrics.json.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/job.h"

namespace hotloop::cli {

struct TestResult {
  std::string name;
  double value = 0;  // the metric on the test part, in the target's unit (squared for mse)
};

class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path model() const { return path_ / "model.safetensors"; }
  std::filesystem::path metrics() const { return path_ / "metrics.json"; }

  void create() const;  // UserError if it cannot be
  void write_config(const std::string& text) const;
  void write_params(const Tree<Array>& params) const;
  void write_history(const std::vector<train::EpochRecord>& history, const std::string& metric, double scale) const;
  void write_metrics(const nlohmann::ordered_json& metrics) const;

  // The stored parameters in the structure of `like`; UserError naming tensors that are missing, left over or of another type.
  Tree<Array> read_params(const Tree<Array>& like) const;
  nlohmann::ordered_json read_metrics() const;

 private:
  std::filesystem::path path_;
};

}  // namespace hotloop::cli
