#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "nn/distributions.h"
#include "nn/registry.h"

namespace hotloop::losses {
namespace {

// From this many degrees of freedom on series in 1 / df have all digits, where differences of lgamma and the integral lose them.
constexpr double many = 1e4;

// lgamma(df / 2) - lgamma((df + 1) / 2) + log(df pi) / 2.
double log_normalizer(double df) {
  if (df >= many) return std::log(2 * std::numbers::pi) / 2 + 1 / (4 * df) - 1 / (24 * df * df * df);
  return std::lgamma(df / 2) - std::lgamma((df + 1) / 2) + std::log(df * std::numbers::pi) / 2;
}

// The probability above t >= 0. With t = sqrt(df) tan(u) it is an integral of cos(u)^(df - 1) up to pi / 2, here by Simpson's rule as far as
// it is not too small to count: it is about exp(-df u^2 / 2).
double tail(double df, double t) {
  const double begin = std::atan(t / std::sqrt(df)), end = std::min(std::numbers::pi / 2, begin + 12 / std::sqrt(df));
  constexpr int intervals = 2000;
  const double step = (end - begin) / intervals;
  double sum = 0;
  for (int i = 0; i <= intervals; ++i) {
    const double weight = i == 0 || i == intervals ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * std::pow(std::max(0.0, std::cos(begin + i * step)), df - 1);
  }
  return sum * step / 3 * std::sqrt(df) * std::exp(-log_normalizer(df));
}

// For levels of at least 1/2.
double quantile(double df, double level) {
  if (df >= many) {
    // Abramowitz and Stegun 26.7.5.
    const double z = normal_quantile(level), s = z * z;
    return z + z * (s + 1) / (4 * df) + z * ((5 * s + 16) * s + 3) / (96 * df * df) +
           z * (((3 * s + 19) * s + 17) * s - 15) / (384 * df * df * df);
  }
  double low = 0, high = std::numbers::pi / 2;  // atan(t / sqrt(df))
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (1 - tail(df, std::sqrt(df) * std::tan(middle)) < level ? low : high) = middle;
  }
  return std::sqrt(df) * std::tan(low);
}

Loss::Pointwise student(double df, double epsilon, double interval) {
  check_positive("student_t", "epsilon", epsilon);
  if (!(df >= 1 && std::isfinite(df))) throw UserError("student_t", "df must be at least 1", print_number(df));
  const Ends ends = ends_of("student_t", interval);
  return {.elements =
              [=](Value outputs, Value target) {
                const std::vector<Value> of = outputs_of(outputs);
                const Value scale = width_of(of[1], epsilon);
                return 0.5 * (df + 1) * log1p(square((target - of[0]) / scale) / df) + log(scale) + log_normalizer(df);
              },
          .distribution = location_and_width("median", "scale", epsilon, ends, quantile(df, ends.high))};
}

}  // namespace

StudentT::StudentT(double df, double epsilon, double interval) : Loss(student(df, epsilon, interval), "student_t") {}

std::vector<LossDef> losses_student_t() {
  return {{"student_t",
           "negative log-likelihood of Student's t, for targets with outliers; outputs: median, raw, with scale = "
           "softplus(raw) + epsilon",
           {{"df", 5.0, "degrees of freedom, at least 1: the fewer, the less an outlier counts"},
            {"epsilon", 1e-4, "least scale"},
            {"interval", 0.8, "probability of the central interval whose ends a forecast has"}},
           [](const Config& config) -> Loss {
             return StudentT(config.number("df"), config.number("epsilon"), config.number("interval"));
           }}};
}

}  // namespace hotloop::losses
