// A model's test: the metric beside the baselines, and what the report shows of the predictions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/baselines.h"
#include "cli/charts.h"
#include "cli/job.h"

namespace hotloop::cli {

// Of a classification: how often each class that was wanted came out as which, in the test's samples, or in their valid steps.
struct Confusion {
  struct Count {
    std::int64_t wanted = 0, predicted = 0, count = 0;
  };
  static constexpr std::int64_t most_in_a_table =
      50;  // classes: a square of more is nothing to look at, and fills the disk

  std::int64_t num_classes = 0;
  std::vector<Count> counts = {};       // of what came up, by the class that was wanted
  std::vector<std::string> names = {};  // of the classes

  std::int64_t total() const;
  double accuracy() const;
  bool fits_a_table() const { return num_classes <= most_in_a_table; }
  // table()[wanted][predicted].
  std::vector<std::vector<std::int64_t>> table() const;
  // Of one class with another, the most frequent first.
  std::vector<Count> largest(std::size_t most) const;
};

// Of a loss whose outputs say quantiles of the targets: how many targets lie at or below each.
struct Calibration {
  struct Quantile {
    std::string name;
    double level = 0, share = 0;  // wanted; found in the test
  };
  std::int64_t num_targets = 0;  // numbers, of all samples
  std::vector<Quantile> quantiles;
};

struct Evaluation {
  std::vector<TestResult> results;  // this model's first, then the baselines', unless the loss is the metric
  std::vector<std::pair<std::string, double>> further;  // what each further metric says of this model, by its name
  std::vector<std::string> left_out = {};               // of baselines that this table cannot be judged by: why
  std::optional<Confusion> confusion;
  std::optional<Calibration> calibration;
  std::optional<Chart>
      forecast;  // of a regression: the first test samples, forecast against truth, in the target's unit
  // Of a regression of several targets over several steps: the first test sample's way through the first and last of them, forecast
  // against truth.
  std::optional<Chart> phase;
};

// `own_table`: the samples are of the run's table, with its training part.
Evaluation evaluate(const Job& job, const data::Samples& samples, const nn::Layer& model, const Tree<Array>& params,
                    const Tree<Array>& buffers, const std::optional<std::vector<train::Ridge>>& ridges,
                    const std::string& name, bool own_table);

// What the results are of, e.g. "mae on the 2,628 test windows, GW"; `table`: all of another table's, instead of the test part.
std::string result_heading(const Job& job, const data::Samples& samples, const Evaluation& evaluation,
                           const std::string& table = "");
// "rmse 0.2231, r2 0.9312 of this model"; "" without further metrics.
std::string further_text(const Evaluation& evaluation);
// Under "test" of each metric what it says of the model.
void add_test(const Job& job, const Evaluation& evaluation, nlohmann::ordered_json& metrics);
// {"classes", "accuracy", "counts": rows of the wanted class}; of many classes "cells": [[wanted, predicted, count], ...] in place of the counts.
nlohmann::ordered_json confusion_json(const Confusion& confusion);
std::string calibration_table(const Calibration& calibration);
nlohmann::ordered_json calibration_json(const Calibration& calibration);  // [{"quantile", "level", "share"}, ...]
// Accuracy, and rows of counts: wanted down, predicted across; the first classes only, or what is confused most, where there are many.
std::string confusion_table(const Confusion& confusion);

}  // namespace hotloop::cli
