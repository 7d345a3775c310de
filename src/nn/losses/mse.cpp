#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::losses {

MSE::MSE() : Loss(Pointwise{[](Value prediction, Value target) { return square(prediction - target); }}, "mse") {}

std::vector<LossDef> losses_mse() {
  return {{"mse", "mean of the squared differences", {}, [](const Config&) -> Loss { return MSE(); }}};
}

}  // namespace hotloop::losses
