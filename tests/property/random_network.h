// A network of layers put together at random: recurrent layers and a user's cells, residual, bidirectional, normalising and convolving ones, with
// parameters and an input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "arrays.h"
#include "derivative_checks.h"
#include "hotloop/nn.h"
#include "random_cell.h"

namespace hotloop::testing {

class RandomNetwork {
 public:
  enum class Size { Any, Small };  // Small: for derivatives of many directions

 private:
  int pick(int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(n)); }
  template <class Values> auto one_of(const Values& values) { return values[rng() % std::size(values)]; }
  std::int64_t some_width() {
    constexpr std::int64_t widths[] = {1, 2, 3, 5, 8, 8, 15, 16, 17, 20, 33, 48, 64, 100}, few[] = {1, 2, 3, 4, 5, 8};
    return size_ == Size::Small ? one_of(few) : one_of(widths);
  }

  nn::RecurrentOptions options() {
    nn::RecurrentOptions o;
    o.num_layers = 1 + (pick(4) == 0);
    o.bidirectional = pick(8) == 0;
    if (o.bidirectional) has_stream = false;
    if (pick(4) == 0) o.activation = "relu";
    if (pick(4) == 0) o.gate = "hard_sigmoid_keras3";
    return o;
  }
  // (B, T, width) -> (B, T, outputs); one that runs over time, more often than not.
  nn::Layer recurrent(std::int64_t width, std::int64_t outputs) {
    switch (pick(5)) {
      case 0: return nn::LSTM(width, outputs, options());
      case 1: return nn::GRU(width, outputs, options(), pick(2) ? nn::Reset::After : nn::Reset::Before);
      case 2: return nn::RNN(width, outputs, options(), pick(2) ? nn::Nonlinearity::Tanh : nn::Nonlinearity::Relu);
      default: return nn::Recurrent(RandomCell(rng(), width, outputs));
    }
  }
  nn::Layer layer(std::int64_t width) {
    switch (pick(10)) {
      case 0: return nn::Linear(width, some_width(), pick(2) == 0);
      case 1: return nn::LayerNorm(width);
      case 2: return nn::BatchNorm(width);
      case 3: {
        constexpr const char* names[] = {"tanh", "gelu", "softmax", "silu", "mish", "elu"};
        return nn::Activation(one_of(names));
      }
      case 4:
        return nn::Conv1d(width, some_width(), 1 + pick(3),
                          {.dilation = 1 + pick(2), .groups = 1, .bias = pick(2) == 0});
      case 5: {
        const nn::Layer inner = recurrent(width, width);
        const bool keeps_shape = inner.output_type({dtype, {1, 1, width}}).shape[2] == width;
        return keeps_shape ? nn::Residual(inner) : inner;
      }
      case 6: {
        const nn::Layer inner = recurrent(width, some_width());
        has_stream = false;
        constexpr nn::Merge merges[] = {nn::Merge::Concat, nn::Merge::Sum, nn::Merge::Mul, nn::Merge::Average};
        return nn::Bidirectional(nn::Sequential(inner), one_of(merges));
      }
      default: return recurrent(width, some_width());
    }
  }

 public:
  explicit RandomNetwork(std::uint64_t seed, Size size = Size::Any)
      : rng(seed * 6151 + 5), dtype(seed % 2 ? DType::F64 : DType::F32), size_(size) {
    constexpr std::int64_t rows[] = {1, 1, 2, 3, 7, 16, 19, 40}, few_rows[] = {1, 1, 2, 3, 5};
    constexpr std::int64_t lengths[] = {1, 2, 3, 5, 9, 17}, short_ones[] = {1, 2, 3, 4};
    const bool small = size == Size::Small;
    features = some_width(), batch = small ? one_of(few_rows) : one_of(rows);
    time = small ? one_of(short_ones) : one_of(lengths);
    std::vector<nn::Layer> layers;
    std::int64_t width = features;
    for (int i = 0, n = 1 + pick(4); i < n; ++i) {
      const nn::Layer next = layer(width);
      layers.push_back(next);
      width = next.output_type({dtype, {1, 1, width}}).shape[2];
    }
    model = nn::Sequential(layers);
    params = model.init(seed, dtype);
    if (params.empty()) dtype = DType::F32;  // a stream takes its dtype from them
    x = random_like(rng, {dtype, {batch, time, features}}, -1.5, 1.5);
  }
  // Dots of one term, which are multiplications in some programs: dot_precision then rounds nothing there.
  bool has_products_of_one() const {
    const Arrays all = params.flatten();
    return std::ranges::any_of(
        all, [](const Array& a) { return a.shape().rank() > 1 && (a.shape()[0] == 1 || a.shape()[1] == 1); });
  }
  std::mt19937_64 rng;
  DType dtype;
  bool has_stream = true;
  std::int64_t features, batch, time;
  nn::Layer model = nn::Sequential();
  Tree<Array> params;
  Array x;

 private:
  Size size_;
};

}  // namespace hotloop::testing
