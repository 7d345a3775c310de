// What a model or a baseline is worth on the test part: in one number, and of each number that a sample's target consists of.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/job.h"

namespace hotloop::cli {

// The metric of parts of the targets, each in its target's own unit.
struct OutputErrors {
  std::vector<double> targets;  // by target, over all steps of the horizon
  std::vector<double> outputs;  // [step 0's targets, step 1's, ...]

  bool empty() const { return outputs.empty(); }
};

struct TestResult {
  std::string name;
  double value = 0;  // the metric, in the target's unit (squared for mse); of several targets, standardised if they are
  OutputErrors by_output = {};  // empty where a sample has one number, or the metric is none of numbers
};

// Writes what is predicted for one sample of the test part, as many numbers as its target has, in their units.
using PredictSample = std::function<void(std::int64_t sample, std::span<double> out)>;

// Rows of predictions [samples, numbers] as a model makes them, standardised if the targets are.
PredictSample standardized_rows(const data::Samples& samples, const Array& rows);

OutputErrors output_errors(const Job& job, const data::Samples& samples, const PredictSample& predict);

// A row for each target, or for each step of the horizon if there is one target, and a column for each result: at most 80 wide, and where
// there are many rows or results some of them. "" if the results have no such numbers.
std::string outputs_table(const Job& job, std::span<const TestResult> results);
// [{"target", "step", "test", "baselines": [{"name", "test"}, ...]}, ...] of all there are.
nlohmann::ordered_json outputs_json(const Job& job, std::span<const TestResult> results);

}  // namespace hotloop::cli
