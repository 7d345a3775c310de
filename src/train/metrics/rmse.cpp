#include <cmath>

#include "train/metrics.h"

namespace hotloop::metrics {
namespace {

class RmseAccumulator : public Accumulator {
 public:
  void add(std::span<const double> prediction, std::span<const double> target, double weight) override {
    mse_->add(prediction, target, weight);
  }
  double value() const override { return std::sqrt(mse_->value()); }

 private:
  std::unique_ptr<Accumulator> mse_ = MSE().start();
};

}  // namespace

RMSE::RMSE() : Metric("rmse", Better::Smaller, 1, [] { return std::make_unique<RmseAccumulator>(); }) {}

std::vector<MetricDef> metrics_rmse() {
  return {{"rmse", "root of the mean of the squared errors", {}, [](const Config&) -> Metric { return RMSE(); }}};
}

}  // namespace hotloop::metrics
