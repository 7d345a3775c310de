#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::losses {

MAE::MAE() : Loss(Pointwise{[](Value prediction, Value target) { return abs(prediction - target); }}, "mae") {}

std::vector<LossDef> losses_mae() {
  return {{"mae", "mean of the absolute differences", {}, [](const Config&) -> Loss { return MAE(); }}};
}

}  // namespace hotloop::losses
