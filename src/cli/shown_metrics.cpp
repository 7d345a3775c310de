#include "cli/shown_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace hotloop::cli {

std::vector<ShownMetric> shown_metrics(const Job& job, const data::Samples& samples) {
  const double std = samples.target_scale().std;
  std::vector<ShownMetric> shown;
  const auto add = [&](const metrics::Metric& metric) {
    shown.push_back({metric.name(), std::pow(std, metric.unit_power())});
  };
  add(job.fit.metric);
  std::ranges::for_each(job.fit.further_metrics, add);
  return shown;
}

std::vector<double> shown_values(std::span<const ShownMetric> metrics, const train::EpochRecord& record) {
  std::vector<double> values = {record.validation * metrics[0].scale};
  for (const ShownMetric& metric : metrics.subspan(1)) {
    const auto found = std::ranges::find(record.metrics, metric.name, &std::pair<std::string, double>::first);
    values.push_back(found == record.metrics.end() ? std::numeric_limits<double>::quiet_NaN()
                                                   : found->second * metric.scale);
  }
  return values;
}

nlohmann::ordered_json metrics_json(const train::EpochRecord& record) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : record.metrics) json[name] = value;
  return json;
}

}  // namespace hotloop::cli
