// PyTorch's CPU generator, number by number: what torch.manual_seed() starts and torch.nn's layers draw from.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "hotloop/array.h"

namespace hotloop::nn {

// A stream: each draw moves it on.
class TorchGenerator {
 public:
  // As torch.manual_seed(seed), of which the generator takes the low 32 bits.
  explicit TorchGenerator(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

  // tensor.uniform_(low, high), in f32 or f64.
  Array uniform(const Shape& shape, DType dtype, double low, double high);
  // tensor.normal_(0, stddev). PyTorch has vectorised logarithms and cosines here, so the last bits differ.
  Array normal(const Shape& shape, DType dtype, double stddev);
  // torch.randperm(n), for n below 2^32 / 20.
  std::vector<std::int64_t> permutation(std::int64_t n);

 private:
  double unit(DType dtype);
  double unit_f64();
  double normal_f64();

  std::mt19937 engine_;
  std::optional<double> spare_;  // the second number of a pair of normal ones
};

}  // namespace hotloop::nn
