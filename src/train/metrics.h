// The generated list of metrics, and what those over classes share.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "hotloop/losses.h"
#include "hotloop/metrics.h"

namespace hotloop::metrics {

// What a metric compares: the numbers of a target, of which each alone has a value too, or what they say together of a class.
enum class Of { Numbers, Classes };

struct MetricDef {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<Metric(const Config&)> make;
  Of of = Of::Numbers;
};

// Each file src/train/metrics/<name>.cpp defines `std::vector<MetricDef> metrics_<name>()`.
using MetricFile = std::vector<MetricDef> (*)();
std::vector<MetricFile> metric_files();  // generated

std::span<const MetricDef> all_metrics();
const MetricDef& metric_def(std::string_view name);  // UserError with the nearest name if there is none
Metric make_metric(const std::string& name, const std::map<std::string, Setting>& settings = {});

// The predicted and the wanted class of one sample, as Accuracy says. UserError naming `where` if there are none.
struct Classes {
  std::int64_t predicted = 0, wanted = 0;
};
Classes classes_of(const std::string& where, std::span<const double> prediction, std::span<const double> target,
                   double threshold);

// Throws UserError unless there are as many predictions as targets.
void check_same_size(const std::string& where, std::span<const double> prediction, std::span<const double> target);

// A loss as a metric: the mean over samples, each alone, in double and without units.
Metric of_loss(const losses::Loss& loss);

}  // namespace hotloop::metrics
