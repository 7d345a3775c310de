#include <cmath>
#include <numbers>

#include "hotloop/ops.h"
#include "nn/distributions.h"
#include "nn/registry.h"

namespace hotloop::losses {
namespace {

Loss::Pointwise normal(double epsilon, double interval) {
  check_positive("gaussian", "epsilon", epsilon);
  const Ends ends = ends_of("gaussian", interval);
  return {.elements =
              [=](Value outputs, Value target) {
                const std::vector<Value> of = outputs_of(outputs);
                const Value std = width_of(of[1], epsilon);
                return 0.5 * square((target - of[0]) / std) + log(std) + 0.5 * std::log(2 * std::numbers::pi);
              },
          .distribution = location_and_width("mean", "std", epsilon, ends, normal_quantile(ends.high))};
}

}  // namespace

Gaussian::Gaussian(double epsilon, double interval) : Loss(normal(epsilon, interval), "gaussian") {}

std::vector<LossDef> losses_gaussian() {
  return {{"gaussian",
           "negative log-likelihood of a normal distribution; outputs: mean, raw, with std = softplus(raw) + epsilon",
           {{"epsilon", 1e-4, "least standard deviation"},
            {"interval", 0.8, "probability of the central interval whose ends a forecast has"}},
           [](const Config& config) -> Loss { return Gaussian(config.number("epsilon"), config.number("interval")); }}};
}

}  // namespace hotloop::losses
