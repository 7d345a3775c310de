#include "train/output_statistics.h"

#include "hotloop/fit.h"

namespace hotloop::train {

std::vector<Array> OutputStatistics::all(const Array& outputs) {
  if (loss_.distribution() == nullptr) return {outputs};
  if (!program_ || program_->input_types()[0] != outputs.type()) {
    const auto statistics = [&](std::span<const Value> in) { return loss_.statistics(in[0]).flatten(); };
    program_.emplace(compile(trace(statistics, std::vector{outputs.type()}, "statistics")));
  }
  return (*program_)({&outputs, 1});
}

Array OutputStatistics::for_metric(const metrics::Metric& metric, const Array& outputs) {
  return metric.loss() ? outputs : point(outputs);
}

Array metric_predictions(const Metric& metric, const losses::Loss& loss, const Array& outputs) {
  return OutputStatistics(loss).for_metric(metric, outputs);
}

}  // namespace hotloop::train
