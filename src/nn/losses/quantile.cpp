#include <charconv>

#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::losses {
namespace {

std::vector<double> checked(std::vector<double> quantiles) {
  if (quantiles.empty()) throw UserError("quantile", "there must be at least one quantile", "none");
  for (const double q : quantiles)
    if (!(q > 0 && q < 1)) throw UserError("quantile", "quantiles must be between 0 and 1", std::to_string(q));
  return quantiles;
}

// "0.1, 0.5, 0.9"
std::vector<double> parse(const std::string& text) {
  std::vector<double> numbers;
  const char *at = text.data(), *end = text.data() + text.size();
  const auto skip = [&] {
    while (at != end && (*at == ' ' || *at == ',')) ++at;
  };
  for (skip(); at != end; skip()) {
    double number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc())
      throw UserError("quantile", "quantiles must be numbers with commas between", "\"" + text + "\"",
                      "quantiles = \"0.1, 0.5, 0.9\"");
    numbers.push_back(number);
    at = stop;
  }
  return numbers;
}

}  // namespace

Quantile::Quantile(std::vector<double> quantiles)
    : Loss(Pointwise{[q = checked(std::move(quantiles))](Value prediction, Value target) {
                       const auto count = static_cast<std::int64_t>(q.size());
                       const int last = prediction.rank() - 1;
                       const bool one_each = last >= 0 && prediction.shape()[last] == count;
                       const Shape without = one_each ? prediction.shape().without(last) : Shape();
                       if (one_each && target.shape() == without)
                         target = expand_dims(target, -1);
                       else if (!one_each || target.shape() != without.with_inserted(last, 1))
                         throw UserError("quantile",
                                         "the prediction must have " + std::to_string(count) +
                                             " numbers, one a quantile, on its last axis, and the target one",
                                         prediction.type().str() + " and " + target.type().str(),
                                         "a model with one output a quantile");
                       const Value level = broadcast_to(cast(constant(Array::from(q, {count})), prediction.dtype()),
                                                        prediction.shape());
                       const Value error = broadcast_to(target, prediction.shape()) - prediction;
                       return maximum(level * error, (level - 1.0) * error);
                     },
                     {},
                     false},
           "quantile") {}

std::vector<LossDef> losses_quantile() {
  return {{"quantile",
           "pinball loss: the model's outputs become quantiles of the target",
           {{"quantiles", "0.1, 0.5, 0.9", "levels between 0 and 1, one for each output of the model"}},
           [](const Config& config) -> Loss { return Quantile(parse(config.text("quantiles"))); }}};
}

}  // namespace hotloop::losses
