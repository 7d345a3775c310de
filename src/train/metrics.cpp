#include "train/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/plugins.h"
#include "train/class_labels.h"

namespace hotloop::metrics {
namespace {

class MeanAccumulator : public Accumulator {
 public:
  MeanAccumulator(std::string name, double (*error)(double, double)) : name_(std::move(name)), error_(error) {}

  void add(std::span<const double> prediction, std::span<const double> target, double weight) override {
    check_same_size(name_, prediction, target);
    for (std::size_t i = 0; i < target.size(); ++i) sum_ += weight * error_(prediction[i], target[i]);
    total_ += weight * static_cast<double>(target.size());
  }
  double value() const override { return sum_ / total_; }

 private:
  std::string name_;
  double (*error_)(double, double);
  double sum_ = 0, total_ = 0;
};

std::int64_t index_of_largest(std::span<const double> scores) {
  return std::ranges::max_element(scores) - scores.begin();
}

}  // namespace

Metric Metric::mean_of(std::string name, int unit_power, double (*error)(double, double)) {
  auto start = [name, error]() -> std::unique_ptr<Accumulator> {
    return std::make_unique<MeanAccumulator>(name, error);
  };
  return Metric(std::move(name), Better::Smaller, unit_power, std::move(start));
}

Metric Metric::of(const losses::Loss& loss) const {
  Metric metric = *this;
  metric.loss_ = std::make_shared<const losses::Loss>(loss);
  return metric;
}

Metric Metric::named(std::string name) const {
  Metric metric = *this;
  metric.name_ = std::move(name);
  return metric;
}

bool Metric::is_better(double a, double b) const {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
  return as_loss(a) < as_loss(b);
}

std::span<const MetricDef> all_metrics() {
  static const std::vector<MetricDef> table = gather_plugins(metric_files());
  return table;
}

const MetricDef& metric_def(std::string_view name) { return find_plugin(all_metrics(), name, "metric"); }

Metric make_metric(const std::string& name, const std::map<std::string, Setting>& settings) {
  const MetricDef& def = metric_def(name);
  return def.make(Config(def.name, def.parameters, settings));
}

Classes classes_of(const std::string& where, std::span<const double> prediction, std::span<const double> target,
                   double threshold) {
  if (prediction.empty() || (target.size() != 1 && target.size() != prediction.size()))
    throw UserError(
        where, "the target must be a class index, or one number a class",
        std::to_string(prediction.size()) + " predictions and " + std::to_string(target.size()) + " targets a sample",
        "a model with one output a class");
  Classes classes;
  classes.predicted = prediction.size() == 1 ? (prediction[0] > threshold ? 1 : 0) : index_of_largest(prediction);
  if (target.size() > 1) {
    classes.wanted = index_of_largest(target);
    return classes;
  }
  const std::int64_t num_classes = std::max<std::int64_t>(2, std::ssize(prediction));
  if (!train::names_class(target[0], num_classes)) train::refuse_label(where, target[0], num_classes);
  classes.wanted = static_cast<std::int64_t>(target[0]);
  return classes;
}

void check_same_size(const std::string& where, std::span<const double> prediction, std::span<const double> target) {
  if (prediction.size() != target.size())
    throw UserError(
        where, "there must be one prediction a target",
        std::to_string(prediction.size()) + " predictions and " + std::to_string(target.size()) + " targets a sample",
        target.size() == 1 ? "a metric of classes, accuracy say, if the targets are classes" : "");
}

}  // namespace hotloop::metrics
