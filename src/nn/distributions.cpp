#include "nn/distributions.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"

namespace hotloop::losses {

std::vector<Value> outputs_of(Value outputs) {
  const int last = outputs.rank() - 1;
  std::vector<Value> each;
  for (std::int64_t i = 0; i < outputs.shape()[last]; ++i) each.push_back(take(outputs, last, i));
  return each;
}

Distribution::Statistic quantile_at(double level) {
  std::string name = "q" + print_digits(100 * level, 6);
  std::ranges::replace(name, '.', '_');
  return {.name = name, .level = level};
}

Value width_of(Value raw, double epsilon) { return softplus(raw) + epsilon; }

Distribution location_and_width(const std::string& location, const std::string& width, double epsilon, Ends ends,
                                double reach) {
  return {.num_outputs = 2,
          .statistics = {{.name = location},
                         {.name = width, .is_width = true},
                         quantile_at(ends.low),
                         quantile_at(ends.high)},
          .compute = [=](Value outputs) -> std::vector<Value> {
            const std::vector<Value> of = outputs_of(outputs);
            const Value at = of[0], wide = width_of(of[1], epsilon);
            return {at, wide, at - reach * wide, at + reach * wide};
          }};
}

Ends ends_of(const std::string& where, double interval) {
  if (!(interval > 0 && interval < 1))
    throw UserError(where, "interval must be between 0 and 1", print_number(interval));
  return {(1 - interval) / 2, (1 + interval) / 2};
}

double normal_quantile(double level) {
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < level ? low : high) = middle;
  }
  return low;
}

void check_positive(const std::string& where, const char* what, double value) {
  if (!(value > 0 && std::isfinite(value)))
    throw UserError(where, std::string(what) + " must be positive", print_number(value));
}

}  // namespace hotloop::losses
