#include <cmath>

#include "train/metrics.h"

namespace hotloop::metrics {

MAE::MAE()
    : Metric(mean_of("mae", 1, [](double prediction, double target) { return std::abs(prediction - target); })) {}

std::vector<MetricDef> metrics_mae() {
  return {{"mae", "mean of the absolute errors", {}, [](const Config&) -> Metric { return MAE(); }}};
}

}  // namespace hotloop::metrics
