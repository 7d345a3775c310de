#include <cmath>
#include <limits>
#include <numbers>

#include "core/print_number.h"
#include "hotloop/data.h"
#include "hotloop/error.h"

namespace hotloop::data {

std::vector<double> lag(std::span<const double> values, std::int64_t steps) {
  if (steps < 1) throw UserError("lag", "steps must be positive", std::to_string(steps));
  std::vector<double> out(values.size(), std::numeric_limits<double>::quiet_NaN());
  const auto shift = static_cast<std::size_t>(steps);
  for (std::size_t row = shift; row < values.size(); ++row) out[row] = values[row - shift];
  return out;
}

std::vector<std::pair<std::string, std::vector<double>>> periodic(const std::string& name, std::int64_t num_rows,
                                                                  const Periodic& spec) {
  if (!(spec.period > 0) || !std::isfinite(spec.period))
    throw UserError("periodic", "period must be positive", print_number(spec.period) + " for '" + name + "'");
  if (spec.step < 1)
    throw UserError("periodic", "step must be positive", std::to_string(spec.step) + " for '" + name + "'");
  if (spec.harmonics < 1)
    throw UserError("periodic", "harmonics must be positive", std::to_string(spec.harmonics) + " for '" + name + "'");
  if (!std::isfinite(spec.phase))
    throw UserError("periodic", "phase must be finite", print_number(spec.phase) + " for '" + name + "'");

  std::vector<std::pair<std::string, std::vector<double>>> columns;
  for (int k = 1; k <= spec.harmonics; ++k) {
    std::vector<double> sines, cosines;
    for (std::int64_t row = 0; row < num_rows; ++row) {
      double position = std::fmod(static_cast<double>(row / spec.step) + spec.phase, spec.period);
      if (position < 0) position += spec.period;
      const double angle = 2 * std::numbers::pi * k * position / spec.period;
      sines.push_back(std::sin(angle));
      cosines.push_back(std::cos(angle));
    }
    columns.emplace_back(name + "_sin" + std::to_string(k), std::move(sines));
    columns.emplace_back(name + "_cos" + std::to_string(k), std::move(cosines));
  }
  return columns;
}

}  // namespace hotloop::data
