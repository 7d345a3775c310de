// The metrics of the validation as people are told of them: in the target's unit.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/job.h"

namespace hotloop::cli {

struct ShownMetric {
  std::string name;
  double scale = 1;  // from the metric of standardised values to that in the target's unit
};

// Of a job, the one that chooses the epoch first.
std::vector<ShownMetric> shown_metrics(const Job& job, const data::Samples& samples);
// An epoch's values of these, in the same order; NaN of one that it was not judged by, before the configuration was changed say.
std::vector<double> shown_values(std::span<const ShownMetric> metrics, const train::EpochRecord& record);
// {"rmse": 0.3, ...}, as the loop has them.
nlohmann::ordered_json metrics_json(const train::EpochRecord& record);

}  // namespace hotloop::cli
