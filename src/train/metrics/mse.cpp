#include "train/metrics.h"

namespace hotloop::metrics {

MSE::MSE()
    : Metric(mean_of("mse", 2,
                     [](double prediction, double target) { return (prediction - target) * (prediction - target); })) {}

std::vector<MetricDef> metrics_mse() {
  return {{"mse", "mean of the squared errors", {}, [](const Config&) -> Metric { return MSE(); }}};
}

}  // namespace hotloop::metrics
