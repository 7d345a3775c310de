// What a loss with a distribution reads off a model's outputs.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "hotloop/jit.h"
#include "hotloop/losses.h"
#include "hotloop/metrics.h"

namespace hotloop::train {

// Compiled for outputs of one type at a time. For one thread.
class OutputStatistics {
 public:
  explicit OutputStatistics(losses::Loss loss) : loss_(std::move(loss)) {}

  // Each statistic of outputs (samples, ..., n * num_outputs), in the distribution's order, (samples, ..., n); without a distribution the
  // outputs alone.
  std::vector<Array> all(const Array& outputs);
  // The one that stands for the target, and its place among all.
  Array point(const Array& outputs) { return all(outputs)[point_index()]; }
  std::size_t point_index() const { return loss_.distribution() == nullptr ? 0 : loss_.distribution()->point; }
  // What the metric compares: its outputs or the point.
  Array for_metric(const metrics::Metric& metric, const Array& outputs);

 private:
  losses::Loss loss_;
  std::optional<Executable> program_;
};

}  // namespace hotloop::train
