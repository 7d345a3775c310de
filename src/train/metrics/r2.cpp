#include <limits>
#include <vector>

#include "hotloop/error.h"
#include "train/metrics.h"

namespace hotloop::metrics {
namespace {

class R2Accumulator : public Accumulator {
 public:
  void add(std::span<const double> prediction, std::span<const double> target, double weight) override {
    check_same_size("r2", prediction, target);
    if (numbers_.empty()) numbers_.resize(target.size());
    HOTLOOP_CHECK(numbers_.size() == target.size(), "samples of different sizes");
    if (!(weight > 0)) return;
    weight_ += weight;
    for (std::size_t i = 0; i < target.size(); ++i) {
      Number& n = numbers_[i];
      // West 1979: a running mean and sum of squares about it that do not cancel.
      const double from_mean = target[i] - n.mean;
      n.mean += from_mean * weight / weight_;
      n.total += weight * from_mean * (target[i] - n.mean);
      n.residual += weight * (prediction[i] - target[i]) * (prediction[i] - target[i]);
    }
  }

  double value() const override {
    if (!(weight_ > 0)) return std::numeric_limits<double>::quiet_NaN();
    double sum = 0;
    for (const Number& n : numbers_) sum += n.total > 0 ? 1 - n.residual / n.total : (n.residual == 0 ? 1 : 0);
    return sum / static_cast<double>(numbers_.size());
  }

 private:
  struct Number {
    double mean = 0, total = 0, residual = 0;
  };
  std::vector<Number> numbers_;
  double weight_ = 0;
};

}  // namespace

R2::R2() : Metric("r2", Better::Larger, 0, [] { return std::make_unique<R2Accumulator>(); }) {}

std::vector<MetricDef> metrics_r2() {
  return {{"r2", "share of the target's variance that is explained", {}, [](const Config&) -> Metric { return R2(); }}};
}

}  // namespace hotloop::metrics
