#include "hotloop/ops.h"
#include "nn/distributions.h"
#include "nn/registry.h"

namespace hotloop::losses {
namespace {

Loss::Pointwise counts(bool full) {
  return {.elements =
              [full](Value outputs, Value target) {
                const Value log_mean = outputs_of(outputs)[0], loss = exp(log_mean) - target * log_mean;
                return full ? loss + lgamma(target + 1.0) : loss;
              },
          .distribution = Distribution{.num_outputs = 1,
                                       .statistics = {{"mean"}, {.name = "std", .is_width = true}},
                                       .compute = [](Value outputs) -> std::vector<Value> {
                                         const Value log_mean = outputs_of(outputs)[0];
                                         return {exp(log_mean), exp(0.5 * log_mean)};
                                       }},
          .targets = {.least = 0}};
}

}  // namespace

Poisson::Poisson(bool full) : Loss(counts(full), "poisson") {}

std::vector<LossDef> losses_poisson() {
  return {{"poisson",
           "negative log-likelihood of counts; output: the logarithm of their mean",
           {{"full", false, "with log(target!), which no parameter changes"}},
           [](const Config& config) -> Loss { return Poisson(config.flag("full")); }}};
}

}  // namespace hotloop::losses
