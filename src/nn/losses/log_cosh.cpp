#include <numbers>

#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::losses {

LogCosh::LogCosh()
    : Loss(Pointwise{[](Value prediction, Value target) {
             const Value error = abs(prediction - target);
             return error + log1p(exp(-2.0 * error)) - std::numbers::ln2;
           }},
           "log_cosh") {}

std::vector<LossDef> losses_log_cosh() {
  return {{"log_cosh", "mean of the logarithms of the differences' hyperbolic cosines", {}, [](const Config&) -> Loss {
             return LogCosh();
           }}};
}

}  // namespace hotloop::losses
