// What losses share whose outputs are parameters of a distribution.
#pragma once

#include <vector>

#include "hotloop/losses.h"

namespace hotloop::losses {

// Outputs (..., count) -> each, (...).
std::vector<Value> outputs_of(Value outputs);

// A quantile, named "q10", or "q2_5" where its level is no whole percentage.
Distribution::Statistic quantile_at(double level);

// softplus(raw) + epsilon: a width from an output without bounds.
Value width_of(Value raw, double epsilon);

// Of a location and raw, where the distribution is symmetric around the location: these two, and both ends of a central interval, which reach
// `reach` widths away.
struct Ends {
  double low, high;  // levels
};
Distribution location_and_width(const std::string& location, const std::string& width, double epsilon, Ends ends,
                                double reach);

// Both ends of the central interval with that probability, as levels. UserError naming `where` unless it is between 0 and 1.
Ends ends_of(const std::string& where, double interval);

// The standard normal distribution's, by bisection: once for each loss that is made.
double normal_quantile(double level);

void check_positive(const std::string& where, const char* what, double value);

}  // namespace hotloop::losses
