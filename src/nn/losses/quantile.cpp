#include <charconv>
#include <cmath>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "nn/distributions.h"
#include "nn/registry.h"

namespace hotloop::losses {
namespace {

std::vector<double> checked(std::vector<double> quantiles) {
  if (quantiles.empty()) throw UserError("quantile", "there must be at least one quantile", "none");
  for (const double q : quantiles)
    if (!(q > 0 && q < 1)) throw UserError("quantile", "quantiles must be between 0 and 1", print_number(q));
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

Distribution of_quantiles(const std::vector<double>& quantiles) {
  Distribution distribution{.num_outputs = std::ssize(quantiles), .compute = outputs_of};
  const auto from_middle = [&](std::size_t i) { return std::abs(quantiles[i] - 0.5); };
  for (std::size_t i = 0; i < quantiles.size(); ++i) {
    distribution.statistics.push_back(quantile_at(quantiles[i]));
    if (from_middle(i) < from_middle(distribution.point)) distribution.point = i;
  }
  return distribution;
}

Loss::Pointwise pinball(std::vector<double> quantiles) {
  const Distribution distribution = of_quantiles(checked(quantiles));
  return {.elements =
              [q = std::move(quantiles)](Value outputs, Value target) {
                const Array levels = Array::from(q, {static_cast<std::int64_t>(q.size())});
                const Value level = broadcast_to(cast(constant(levels), outputs.dtype()), outputs.shape());
                const Value error = broadcast_to(expand_dims(target, -1), outputs.shape()) - outputs;
                return maximum(level * error, (level - 1.0) * error);
              },
          .distribution = distribution};
}

}  // namespace

Quantile::Quantile(std::vector<double> quantiles) : Loss(pinball(std::move(quantiles)), "quantile") {}

std::vector<LossDef> losses_quantile() {
  return {{"quantile",
           "pinball loss: for each number of the target an output for each quantile",
           {{"quantiles", "0.1, 0.5, 0.9", "levels between 0 and 1"}},
           [](const Config& config) -> Loss { return Quantile(parse(config.text("quantiles"))); }}};
}

}  // namespace hotloop::losses
