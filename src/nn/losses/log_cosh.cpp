#include <numbers>

#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::losses {

LogCosh::LogCosh()
    : Loss(Pointwise{[](Value prediction, Value target) {
             // The size is of one side at 0 too, where abs has no derivative: so those of every order are right.
             const Value error = prediction - target, size = select(greater(error, like(error, 0)), error, -error);
             return size + log1p(exp(-2.0 * size)) - std::numbers::ln2;
           }},
           "log_cosh") {}

std::vector<LossDef> losses_log_cosh() {
  return {{"log_cosh", "mean of the logarithms of the differences' hyperbolic cosines", {}, [](const Config&) -> Loss {
             return LogCosh();
           }}};
}

}  // namespace hotloop::losses
