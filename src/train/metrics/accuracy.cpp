#include "train/metrics.h"

namespace hotloop::metrics {
namespace {

class AccuracyAccumulator : public Accumulator {
 public:
  explicit AccuracyAccumulator(double threshold) : threshold_(threshold) {}

  void add(std::span<const double> prediction, std::span<const double> target, double weight) override {
    const Classes classes = classes_of("accuracy", prediction, target, threshold_);
    right_ += classes.predicted == classes.wanted ? weight : 0;
    total_ += weight;
  }
  double value() const override { return right_ / total_; }

 private:
  double threshold_, right_ = 0, total_ = 0;
};

}  // namespace

Accuracy::Accuracy(double threshold)
    : Metric("accuracy", Better::Larger, 0, [threshold] { return std::make_unique<AccuracyAccumulator>(threshold); }) {}

std::vector<MetricDef> metrics_accuracy() {
  return {{"accuracy",
           "share of samples whose class is right",
           {{"threshold", 0.0, "above which one score is class 1: 0 for logits, 0.5 for probabilities"}},
           [](const Config& config) -> Metric { return Accuracy(config.number("threshold")); },
           Of::Classes}};
}

}  // namespace hotloop::metrics
