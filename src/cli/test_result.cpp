#include "cli/test_result.h"

#include <fmt/format.h>
#include <algorithm>
#include <memory>

#include "cli/report.h"
#include "train/metrics.h"

namespace hotloop::cli {
namespace {

constexpr std::size_t table_width = 80, table_rows = 8, number_width = 12;

// Of `count` rows at most table_rows, the first and the last among them.
std::vector<std::size_t> chosen_rows(std::size_t count) {
  const std::size_t rows = std::min(count, table_rows);
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < rows; ++i) chosen.push_back(rows < count ? i * (count - 1) / (rows - 1) : i);
  return chosen;
}

}  // namespace

PredictSample standardized_rows(const data::Samples& samples, const Array& rows) {
  return [&samples, rows](std::int64_t sample, std::span<double> out) {
    const std::span<const data::Standardization> scales = samples.preparation().target_scales();
    std::int64_t at = sample * std::ssize(out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const data::Standardization& scale = scales[i % scales.size()];
      out[i] = rows.at(at++) * scale.std + scale.mean;
    }
  };
}

OutputErrors output_errors(const Job& job, const data::Samples& samples, const PredictSample& predict) {
  const data::Dataset& test = samples.test();
  const std::int64_t num_outputs = test.target_shape().size();
  const metrics::Metric& metric = job.fit.metric;
  if (num_outputs < 2 || is_integer(test.target_dtype()) || metric.loss() ||
      metrics::metric_def(metric.name()).of != metrics::Of::Numbers)
    return {};
  const std::span<const data::Standardization> scales = samples.preparation().target_scales();
  const std::size_t num_targets = scales.size();
  std::vector<std::unique_ptr<metrics::Accumulator>> targets, outputs;
  for (std::size_t k = 0; k < num_targets; ++k) targets.push_back(metric.start());
  for (std::int64_t i = 0; i < num_outputs; ++i) outputs.push_back(metric.start());
  std::vector<double> predicted(static_cast<std::size_t>(num_outputs));
  Array wanted(test.target_dtype(), test.target_shape());
  for (std::int64_t sample = 0; sample < test.size(); ++sample) {
    test.gather(std::span(&sample, 1), {.targets = wanted.raw()});
    predict(sample, predicted);
    for (std::size_t i = 0; i < predicted.size(); ++i) {
      const data::Standardization& scale = scales[i % num_targets];
      const double truth = wanted.at(static_cast<std::int64_t>(i)) * scale.std + scale.mean;
      for (const auto& part : {&targets[i % num_targets], &outputs[i]})
        (*part)->add(std::span(predicted).subspan(i, 1), std::span(&truth, 1));
    }
  }
  OutputErrors errors;
  for (const auto& part : targets) errors.targets.push_back(part->value());
  for (const auto& part : outputs) errors.outputs.push_back(part->value());
  return errors;
}

std::string outputs_table(const Job& job, std::span<const TestResult> results) {
  if (results.empty() || results[0].by_output.empty()) return "";
  const std::vector<std::string>& targets = job.recipe.targets;
  const bool by_target = targets.size() > 1;
  const std::size_t count = by_target ? targets.size() : results[0].by_output.outputs.size();
  const auto name_of_row = [&](std::size_t row) {
    return by_target ? targets[row] : "step " + std::to_string(row + 1);
  };
  const std::vector<std::size_t> rows = chosen_rows(count);
  std::size_t name_width = 0;
  for (const std::size_t row : rows)
    name_width = std::max(name_width, std::min<std::size_t>(num_columns(name_of_row(row)), 24));
  const std::size_t columns = std::min(results.size(), (table_width - 2 - name_width) / (number_width + 2));
  std::string out = fmt::format("{} of each {}, in its own unit\n  {:<{}}", job.fit.metric.name(),
                                by_target ? "target" : "step of the horizon", "", name_width);
  for (std::size_t c = 0; c < columns; ++c)
    out += "  " + padded(shortened(c == 0 ? "this model" : results[c].name, number_width), number_width, true);
  out += "\n";
  for (const std::size_t row : rows) {
    out += "  " + padded(shortened(name_of_row(row), name_width), name_width);
    for (std::size_t c = 0; c < columns; ++c) {
      const OutputErrors& errors = results[c].by_output;
      out += fmt::format("  {:>{}}", score_text((by_target ? errors.targets : errors.outputs)[row]), number_width);
    }
    out += "\n";
  }
  if (rows.size() < count || columns < results.size())
    out += fmt::format("  (some of {} {} and {} results: metrics.json has them all)\n", count,
                       by_target ? "targets" : "steps", results.size());
  return out;
}

nlohmann::ordered_json outputs_json(const Job& job, std::span<const TestResult> results) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  const std::vector<std::string>& targets = job.recipe.targets;
  const std::size_t count = results.empty() ? 0 : results[0].by_output.outputs.size();
  for (std::size_t i = 0; i < count; ++i) {
    nlohmann::ordered_json output = {{"target", targets[i % targets.size()]},
                                     {"step", i / targets.size() + 1},
                                     {"test", results[0].by_output.outputs[i]},
                                     {"baselines", nlohmann::ordered_json::array()}};
    for (const TestResult& r : results.subspan(1))
      output["baselines"].push_back({{"name", r.name}, {"test", r.by_output.outputs[i]}});
    all.push_back(std::move(output));
  }
  return all;
}

}  // namespace hotloop::cli
