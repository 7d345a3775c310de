#include <vector>

#include "hotloop/error.h"
#include "hotloop/fit.h"

namespace hotloop::train {

double evaluate_metric(const Metric& metric, const Array& predictions, const data::Dataset& samples, double scale,
                       double offset) {
  const std::int64_t num_samples = samples.size();
  const Shape target_shape = samples.target_shape();
  if (num_samples == 0 || predictions.shape().rank() < 1 || predictions.shape()[0] != num_samples)
    throw UserError(
        "metric", "there must be one prediction a sample, and at least one",
        predictions.type().str() + " for " + std::to_string(num_samples) + " targets of shape " + target_shape.str());
  // A sequence's steps are compared one by one: (samples, time, outputs) against targets (time, ...).
  const bool steps =
      predictions.shape().rank() == 3 && target_shape.rank() >= 1 && target_shape[0] == predictions.shape()[1];
  const std::int64_t num_steps = steps ? target_shape[0] : 1;
  const auto size_of_step = [&](std::int64_t whole) { return static_cast<std::size_t>(whole / num_steps); };
  std::vector<double> prediction(size_of_step(predictions.size() / num_samples)),
      wanted(size_of_step(target_shape.size()));
  Array target(samples.target_dtype(), target_shape), weight(samples.dtype(), {1});
  std::int32_t length = 0;
  const bool maps = is_float(samples.target_dtype());
  const auto accumulator = metric.start();
  for (std::int64_t i = 0; i < num_samples; ++i) {
    samples.gather(std::span(&i, 1), {.targets = target.raw(), .lengths = &length, .weights = weight.raw()});
    std::int64_t at = i * (predictions.size() / num_samples), at_target = 0;
    const std::int64_t valid_steps = steps && samples.has_lengths() ? length : num_steps;
    for (std::int64_t t = 0; t < valid_steps; ++t) {
      for (double& v : prediction) v = maps ? predictions.at(at++) * scale + offset : predictions.at(at++);
      for (double& v : wanted) v = maps ? target.at(at_target++) * scale + offset : target.at(at_target++);
      accumulator->add(prediction, wanted, weight.at(0));
    }
  }
  return accumulator->value();
}

}  // namespace hotloop::train
