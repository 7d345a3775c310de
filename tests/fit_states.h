// Samples and options for tests of fit, and what tells two states of it apart.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "hotloop/hotloop.h"

namespace hotloop::train {

// y = sum of (j + 1) x_j + 0.5: n samples of k features.
inline data::ArrayDataset linear_data(std::int64_t n, std::int64_t k, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<double> x, y;
  for (std::int64_t i = 0; i < n; ++i) {
    double sum = 0.5;
    for (std::int64_t j = 0; j < k; ++j) {
      x.push_back(normal(rng));
      sum += x.back() * static_cast<double>(j + 1);
    }
    y.push_back(sum);
  }
  return {Array::from(x, {n, k}), Array::from(y, {n, 1})};
}

inline FitOptions options_of(std::int64_t epochs) {
  FitOptions options{.optimizer = optim::SGD(0.05), .batch_size = 8, .epochs = epochs, .seed = 3};
  options.compile.backend = "interp";
  return options;
}

// The trained state, as bytes: parameters, optimiser state, best parameters, counters and history without its times.
inline std::string bits(const TrainingState& state) {
  std::string out;
  const auto add_bytes = [&](const void* data, std::size_t n) { out.append(static_cast<const char*>(data), n); };
  for (const Tree<Array>* tree : {&state.params, &state.optimizer_state, &state.buffers, &state.best_params})
    for (const Array& leaf : tree->flatten()) add_bytes(leaf.raw(), leaf.bytes());
  for (const std::int64_t v :
       {state.epoch, state.step, state.num_steps, state.best_epoch, state.epochs_without_improvement})
    add_bytes(&v, sizeof v);
  add_bytes(&state.epoch_loss, sizeof state.epoch_loss);
  add_bytes(&state.stopping_reference, sizeof state.stopping_reference);
  for (const EpochRecord& r : state.history) {
    for (const double v : {static_cast<double>(r.epoch), r.train_loss, r.validation}) add_bytes(&v, sizeof v);
    for (const auto& [name, value] : r.metrics) {
      out += name;
      add_bytes(&value, sizeof value);
    }
  }
  return out;
}

}  // namespace hotloop::train
