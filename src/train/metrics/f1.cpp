#include <limits>
#include <map>

#include "train/metrics.h"

namespace hotloop::metrics {
namespace {

class F1Accumulator : public Accumulator {
 public:
  explicit F1Accumulator(double threshold) : threshold_(threshold) {}

  void add(std::span<const double> prediction, std::span<const double> target, double weight) override {
    const Classes classes = classes_of("f1", prediction, target, threshold_);
    if (!(weight > 0)) return;
    if (classes.predicted == classes.wanted) {
      counts_[classes.wanted].both += weight;
    } else {
      counts_[classes.wanted].one += weight;
      counts_[classes.predicted].one += weight;
    }
  }

  double value() const override {
    if (counts_.empty()) return std::numeric_limits<double>::quiet_NaN();
    double sum = 0;
    for (const auto& [index, count] : counts_) sum += 2 * count.both / (2 * count.both + count.one);
    return sum / static_cast<double>(counts_.size());
  }

 private:
  struct Count {
    double both = 0;  // true positives
    double one = 0;   // false positives and false negatives
  };
  double threshold_;
  std::map<std::int64_t, Count> counts_;
};

}  // namespace

F1::F1(double threshold)
    : Metric("f1", Better::Larger, 0, [threshold] { return std::make_unique<F1Accumulator>(threshold); }) {}

std::vector<MetricDef> metrics_f1() {
  return {{"f1",
           "mean over classes of 2 tp / (2 tp + fp + fn) (macro average)",
           {{"threshold", 0.0, "above which one score is class 1: 0 for logits, 0.5 for probabilities"}},
           [](const Config& config) -> Metric { return F1(config.number("threshold")); },
           Of::Classes}};
}

}  // namespace hotloop::metrics
