// A training job as a configuration file describes it: data, model, loss, optimiser, loop and baselines.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/config_reader.h"
#include "hotloop/data.h"
#include "hotloop/fit.h"
#include "nn/registry.h"

namespace hotloop::cli {

// A simple model that the result is compared with.
struct Baseline {
  enum class Kind { Column, Ridge };
  Kind kind = Kind::Column;
  std::string name;
  std::vector<std::string> columns;  // of Kind::Column: whose values are the prediction, one for each target
  std::vector<double> lambdas;       // of Kind::Ridge
};

// Of the command line: "train.epochs=5", given as "--epochs 5" or "--set train.epochs=5".
struct Assignment {
  std::string text, given_as;
};

// A configuration file and what the command line replaces in it.
struct JobSource {
  std::filesystem::path path;
  std::vector<Assignment> assignments = {};
  std::optional<std::filesystem::path> data_file = {};  // as seen from the working directory
};

struct Job {
  std::filesystem::path data_file;  // as seen from the working directory
  data::CsvOptions csv;
  data::MemoryOptions memory;
  data::Recipe recipe;
  std::vector<nn::LayerConfig> model;
  std::vector<std::pair<std::string, Section>> layers;  // type and table of each layer, those inside others too
  std::string loss_name, optimizer_name;
  // What a model's outputs are to a loss that says so: of classes' probabilities their logits, or these themselves.
  enum class Scores { Other, Logits, Probabilities };
  Scores scores = Scores::Other;
  train::FitOptions fit;  // without callbacks
  std::vector<Baseline> baselines;
  std::string text;  // the whole configuration with every default, as TOML; data_file as it was written

  std::string precision() const;  // as [train] precision names it
  // Of one batch. The table is read where the features are only known with it: categories, "x*", series.
  ValueType input_type() const;
  ValueType input_type(const data::Samples& samples) const;
  nn::Layer make_model(const ValueType& input) const;
  // UserError unless outputs that are scores of classes are as many as the samples' classes.
  void check_classes(const nn::Layer& made, const data::Samples& samples) const;
};

// UserError naming file, line and key for anything it does not understand.
Job read_job(const JobSource& source);
// The [[model]] tables; UserError if there are none. Appends type and table of each layer to `tables`.
std::vector<nn::LayerConfig> read_model(ConfigFile& file,
                                        std::vector<std::pair<std::string, Section>>* tables = nullptr);
// The configuration again, with the data file written as seen from `folder`.
std::string text_for_folder(const JobSource& source, const std::filesystem::path& folder);

data::Samples load_samples(const Job& job);
// What its metric is in: "in units of load", squared for mse, "" for r2; or standardised where there are several targets.
std::string unit_of(const Job& job);

}  // namespace hotloop::cli
