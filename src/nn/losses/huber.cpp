#include "core/print_number.h"
#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::losses {

Huber::Huber(double delta)
    : Loss(Pointwise{[delta](Value prediction, Value target) {
             const Value error = prediction - target, inner = clip(error, -delta, delta);
             return inner * (error - 0.5 * inner);
           }},
           "huber") {
  if (!(delta > 0)) throw UserError("huber", "delta must be positive", print_number(delta));
}

std::vector<LossDef> losses_huber() {
  return {{"huber",
           "mean of half the squared differences, linear beyond delta",
           {{"delta", 1.0, "difference from which on it is linear"}},
           [](const Config& config) -> Loss { return Huber(config.number("delta")); }}};
}

}  // namespace hotloop::losses
