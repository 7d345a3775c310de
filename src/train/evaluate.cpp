#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/fit.h"
#include "hotloop/jit.h"
#include "train/each_target.h"

namespace hotloop::train {
namespace {

// The mean of a loss that compares whole sequences, over batches of rows.
double mean_over_sequences(const losses::Loss& loss, const Array& predictions, const data::Dataset& samples) {
  constexpr std::int64_t most_rows = 256;
  const bool lengths = samples.has_lengths();
  const auto weighted = jit([&](std::span<const Value> in) {
    const losses::Loss::Weighted result = loss(in[0], in[1], {.samples = in[2], .lengths = lengths ? in[3] : Value()});
    return std::vector<Value>{result.loss, result.total};
  });
  const Shape row = predictions.shape().without(0);
  const std::size_t row_bytes = predictions.bytes() / static_cast<std::size_t>(samples.size());
  double total = 0, weight = 0;
  for (std::int64_t begin = 0; begin < samples.size(); begin += most_rows) {
    const std::int64_t rows = std::min(most_rows, samples.size() - begin);
    std::vector<std::int64_t> which(static_cast<std::size_t>(rows));
    std::iota(which.begin(), which.end(), begin);
    Array outputs(predictions.dtype(), row.with_inserted(0, rows));
    std::memcpy(outputs.raw(),
                static_cast<const std::byte*>(predictions.raw()) + static_cast<std::size_t>(begin) * row_bytes,
                outputs.bytes());
    Array targets(samples.target_dtype(), samples.target_shape().with_inserted(0, rows));
    Array weights = Array::full(samples.dtype(), {rows}, 1), steps = Array::full(DType::I32, {rows}, 1);
    samples.gather(which,
                   {.targets = targets.raw(), .lengths = steps.data<std::int32_t>().data(), .weights = weights.raw()});
    std::vector<Array> inputs = {outputs, targets, weights.cast(outputs.dtype())};
    if (lengths) inputs.push_back(steps);
    const std::vector<Array> found = weighted(inputs);
    total += found[0].at(0) * found[1].at(0);
    weight += found[1].at(0);
  }
  return total / weight;
}

}  // namespace

double evaluate_metric(const Metric& metric, const Array& predictions, const data::Dataset& samples, double scale,
                       double offset) {
  const std::int64_t num_samples = samples.size();
  const Shape target_shape = samples.target_shape();
  if (num_samples == 0 || predictions.shape().rank() < 1 || predictions.shape()[0] != num_samples)
    throw UserError(
        "metric", "there must be one prediction a sample, and at least one",
        predictions.type().str() + " for " + std::to_string(num_samples) + " targets of shape " + target_shape.str());
  if (metric.loss() && metric.loss()->compares_sequences())
    return mean_over_sequences(*metric.loss(), predictions, samples);
  const bool maps = is_float(samples.target_dtype());
  const auto accumulator = metric.start();
  for_each_target(predictions, samples, [&](std::span<double> prediction, std::span<double> target, double weight) {
    for (const std::span<double> numbers : {prediction, target})
      for (double& v : numbers) v = maps ? v * scale + offset : v;
    accumulator->add(prediction, target, weight);
    return true;
  });
  return accumulator->value();
}

}  // namespace hotloop::train
