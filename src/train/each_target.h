// Targets beside their predictions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotloop/data.h"

namespace hotloop::train {

// Calls f(prediction, target, weight) with the numbers of each sample, or of each valid step of one: predictions (samples, time, ...) for
// targets (time, ...); until it returns false. Samples of weight 0, which may be anything, are passed over.
template <class F> void for_each_target(const Array& predictions, const data::Dataset& samples, F&& f) {
  const Shape shape = samples.target_shape();
  const bool steps = predictions.shape().rank() == 3 && shape.rank() >= 1 && shape[0] == predictions.shape()[1];
  const std::int64_t num_steps = steps ? shape[0] : 1, per_sample = predictions.size() / samples.size();
  std::vector<double> prediction(static_cast<std::size_t>(per_sample / num_steps)),
      wanted(static_cast<std::size_t>(shape.size() / num_steps));
  Array target(samples.target_dtype(), shape), weight(samples.dtype(), {1});
  std::int32_t length = 0;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    samples.gather(std::span(&i, 1), {.targets = target.raw(), .lengths = &length, .weights = weight.raw()});
    if (weight.at(0) == 0) continue;
    const std::int64_t valid = steps && samples.has_lengths() ? length : num_steps;
    std::int64_t at = i * per_sample, at_target = 0;
    for (std::int64_t t = 0; t < valid; ++t) {
      for (double& v : prediction) v = predictions.at(at++);
      for (double& v : wanted) v = target.at(at_target++);
      if (!f(std::span(prediction), std::span(wanted), weight.at(0))) return;
    }
  }
}

}  // namespace hotloop::train
