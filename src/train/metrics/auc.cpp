#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hotloop/error.h"
#include "train/metrics.h"

namespace hotloop::metrics {
namespace {

class AUCAccumulator : public Accumulator {
 public:
  void add(std::span<const double> prediction, std::span<const double> target, double weight) override {
    if (prediction.size() > 2)
      throw UserError("auc", "there must be two classes", std::to_string(prediction.size()) + " predictions a sample",
                      "accuracy or f1, which are of any number of classes");
    const Classes classes = classes_of("auc", prediction, target, 0);
    if (!(weight > 0)) return;
    const double score = prediction.size() == 2 ? prediction[1] - prediction[0] : prediction[0];
    all_scored_ = all_scored_ && !std::isnan(score);
    samples_.push_back({score, weight, classes.wanted == 1});
  }

  double value() const override {
    if (!all_scored_) return std::numeric_limits<double>::quiet_NaN();
    std::vector<Sample> sorted = samples_;
    std::ranges::sort(sorted, {}, &Sample::score);
    double below = 0, in_order = 0, positive = 0;  // weights: of class 0 so far, of pairs in order, of class 1
    for (auto at = sorted.begin(); at != sorted.end();) {
      double equal_positive = 0, equal_negative = 0;
      for (const double score = at->score; at != sorted.end() && at->score == score; ++at)
        (at->is_positive ? equal_positive : equal_negative) += at->weight;
      in_order += equal_positive * (below + equal_negative / 2);
      below += equal_negative;
      positive += equal_positive;
    }
    return in_order / (positive * below);
  }

 private:
  struct Sample {
    double score = 0, weight = 0;
    bool is_positive = false;
  };
  std::vector<Sample> samples_;
  bool all_scored_ = true;
};

}  // namespace

AUC::AUC() : Metric("auc", Better::Larger, 0, [] { return std::make_unique<AUCAccumulator>(); }) {}

std::vector<MetricDef> metrics_auc() {
  return {{"auc",
           "area under the ROC curve of two classes: the share of pairs of which class 1 has the higher score",
           {},
           [](const Config&) -> Metric { return AUC(); },
           Of::Classes}};
}

}  // namespace hotloop::metrics
