// The one-page report of a run.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/evaluation.h"
#include "cli/shown_metrics.h"

namespace hotloop::cli {

struct ReportContent {
  std::string title;     // "demand"
  std::string headline;  // "Test mae 0.1767, epoch 31 of 40"
  std::string status;    // what ended the training, when it was not its last epoch; may be empty
  std::string result_heading;
  std::vector<TestResult> results;
  std::string further;  // what further metrics say of the first; may be empty
  bool larger_is_better = false;
  std::vector<std::pair<std::string, std::string>> facts;  // label and value
  std::vector<Chart> charts;
  std::optional<Confusion> confusion;
  std::string outputs;  // plain text, laid out with spaces, as the next; may be empty
  std::string kernels, times, step;
  std::string config;  // TOML
  std::vector<train::EpochRecord> history;
  std::vector<ShownMetric> metrics;
};

// Self-contained HTML: no script, no file beside it; light or dark as the browser is.
std::string print_html(const ReportContent& content);

// The loss of each epoch on the training samples, and what each metric says of the validation, in one picture's style.
Chart loss_chart(const std::vector<train::EpochRecord>& history);
std::vector<Chart> validation_charts(const std::vector<train::EpochRecord>& history,
                                     std::span<const ShownMetric> metrics, std::int64_t best_epoch);

}  // namespace hotloop::cli
