#include "hotloop/ops.h"
#include "nn/distributions.h"
#include "nn/registry.h"

namespace hotloop::losses {
namespace {

// With r = 1 / a: -log of Gamma(t + r) / (Gamma(r) t!) (r / (r + m))^r (m / (r + m))^t. In f64, whose digits outlast what cancels between
// the logarithms where r is large.
Value negative_log_likelihood(Value log_mean, Value dispersion, Value target) {
  const Value a = cast(dispersion, DType::F64), t = cast(target, DType::F64), x = cast(log_mean, DType::F64);
  const Value r = 1.0 / a, z = x + log(a), is_above = greater(z, like(z, 0));  // a m = exp(z)
  const Value loss = lgamma(t + 1.0) + lgamma(r) - lgamma(t + r) + select(is_above, r, -t) * z +
                     (t + r) * log1p(exp(select(is_above, -z, z)));
  return cast(loss, log_mean.dtype());
}

Loss::Pointwise counts(double epsilon) {
  check_positive("negative_binomial", "epsilon", epsilon);
  return {.elements =
              [=](Value outputs, Value target) {
                const std::vector<Value> of = outputs_of(outputs);
                return negative_log_likelihood(of[0], width_of(of[1], epsilon), target);
              },
          .distribution = Distribution{.num_outputs = 2,
                                       .statistics = {{"mean"}, {.name = "std", .is_width = true}},
                                       .compute = [=](Value outputs) -> std::vector<Value> {
                                         const std::vector<Value> of = outputs_of(outputs);
                                         const Value mean = exp(of[0]), a = width_of(of[1], epsilon);
                                         return {mean, sqrt(mean) * sqrt(1.0 + a * mean)};
                                       }},
          .targets = {.least = 0}};
}

}  // namespace

NegativeBinomial::NegativeBinomial(double epsilon) : Loss(counts(epsilon), "negative_binomial") {}

std::vector<LossDef> losses_negative_binomial() {
  return {{"negative_binomial",
           "negative log-likelihood of counts with variance mean + a mean^2; outputs: log mean, raw, with a = "
           "softplus(raw) + epsilon",
           {{"epsilon", 1e-4, "least a; 0 would be Poisson's distribution"}},
           [](const Config& config) -> Loss { return NegativeBinomial(config.number("epsilon")); }}};
}

}  // namespace hotloop::losses
