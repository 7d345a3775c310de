// A training job as a configuration file describes it: data, model, loss, optimiser, loop and baselines.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hotloop/data.h"
#include "hotloop/fit.h"
#include "nn/registry.h"

namespace hotloop::cli {

struct LagColumn {
  std::string name, column;
  std::int64_t steps = 0;
};

struct PeriodicColumns {
  std::string name;
  data::Periodic spec;
};

// A simple model that the result is compared with.
struct Baseline {
  enum class Kind { Column, Ridge };
  Kind kind = Kind::Column;
  std::string name;
  std::string column;           // of Kind::Column: its value is the prediction
  std::vector<double> lambdas;  // of Kind::Ridge
};

// What the command line may replace.
struct JobOverrides {
  std::optional<std::int64_t> epochs, seed, threads, batch_size;
  std::optional<std::string> data_file, backend;
};

struct Job {
  std::filesystem::path data_file;  // as seen from the working directory
  char separator = ',';
  std::vector<std::string> inputs;  // columns of the file, lags, and names of periodic columns
  std::vector<LagColumn> lags;
  std::vector<PeriodicColumns> periodics;
  data::WindowOptions window;  // its inputs are filled in: periodic names stand for all their columns
  std::vector<nn::LayerConfig> model;
  std::string loss_name, optimizer_name;
  train::FitOptions fit;  // without callbacks
  std::vector<Baseline> baselines;
  std::string text;  // the whole configuration with every default, as TOML; data_file as it was written

  ValueType input_type() const;  // of one batch
  nn::Layer make_model() const;
};

// UserError naming file, line and key for anything it does not understand.
Job read_job(const std::filesystem::path& path, const JobOverrides& overrides = {});
// The configuration again, with the data file written as seen from `folder`.
std::string text_for_folder(const std::filesystem::path& path, const JobOverrides& overrides,
                            const std::filesystem::path& folder);

// The table of the job: columns of the file and derived ones.
data::Table load_table(const Job& job);

}  // namespace hotloop::cli
