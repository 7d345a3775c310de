// Networks of layers put together at random: recurrent layers and a user's cells, residual, bidirectional, normalising and convolving ones. The output
// is the oracle's; a row alone, any number of threads, every step of a stream and the exported C give its bits.
#include <algorithm>
#include <cstring>
#include <span>

#include "arrays.h"
#include "compiled.h"
#include "derivative_checks.h"
#include "exports.h"
#include "hotloop/nn.h"
#include "hotloop/stream.h"
#include "hotloop/train.h"
#include "model_checks.h"
#include "random_cell.h"
#include "seeds.h"

namespace hotloop::testing {
namespace {

class Network {
 private:
  int pick(int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(n)); }
  template <class Values> auto one_of(const Values& values) { return values[rng() % std::size(values)]; }
  std::int64_t some_width() {
    constexpr std::int64_t widths[] = {1, 2, 3, 5, 8, 8, 15, 16, 17, 20, 33, 48, 64, 100};
    return one_of(widths);
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
  explicit Network(std::uint64_t seed) : rng(seed * 6151 + 5), dtype(seed % 2 ? DType::F64 : DType::F32) {
    constexpr std::int64_t rows[] = {1, 1, 2, 3, 7, 16, 19, 40};
    constexpr std::int64_t lengths[] = {1, 2, 3, 5, 9, 17};
    features = some_width(), batch = one_of(rows), time = one_of(lengths);
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
};

void check(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  const Network n(seed);
  const Array wanted = oracle(n.model, n.params, n.x);
  const std::vector<Compiled> targets = llvm_targets();
  for (const Compiled& which : {targets[seed % targets.size()], targets.back()}) {
    SCOPED_TRACE(which.target);
    CompileOptions options = which.options();
    const auto output = [&] {
      return expect_the_same_bits(n.model, n.params, n.x, options, seed, n.has_stream ? Steps::OfAllRows : Steps::None);
    };
    const double tolerance = n.dtype == DType::F32 ? 2e-4 : 1e-11;
    expect_near(output(), wanted, tolerance, "the oracle");
    if (n.dtype == DType::F32 && seed % 4 == 0 && !n.has_products_of_one()) {
      SCOPED_TRACE("bf16");
      options.dot_precision = "bf16";
      output();
    }
  }
}

// Row 0 in the exported C, from the object or from the source.
template <class T> void check_export(const Network& n, std::uint64_t seed) {
  const std::string best = runnable_targets().back();
  const std::string level = level_of(best);
  const ExportedC files = export_c(n.model, n.params, n.features, {.name = "net", .target = level});
  CompileOptions options;
  options.target = best;
  const Array all = row_of(whole(n.model, n.params, n.x, options), 0), x = row_of(n.x, 0);
  Exports<T> exports(files, seed / 2 % 4 == 0, "-march=" + level);
  void* voice = exports.new_voice();
  ASSERT_EQ(exports.init(voice, nullptr), 0);
  const auto width = static_cast<std::size_t>(all.shape()[2]);
  for (std::int64_t t = 0; t < n.time; ++t) {
    const Array row = at_step(x, t), expected = at_step(all, t);
    std::vector<T> y(width);
    exports.step(voice, static_cast<const T*>(row.raw()), y.data());
    EXPECT_EQ(std::memcmp(y.data(), expected.raw(), expected.bytes()), 0) << "step " << t;
  }
}

TEST(RandomNetworks, AreTheOraclesAndTheSameBitsStepByStepAndAlone) { for_seeds(check, 16); }

TEST(RandomNetworks, TrainAsTheOracle) {
  for_seeds(
      [](std::uint64_t seed) {
        SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
        Network n(seed);
        if (!n.params.empty()) expect_trains_as_the_oracle(n.model, n.params, n.x, n.rng, seed);
      },
      8);
}

TEST(RandomNetworks, GiveTheSameBitsInExportedC) {
  for_seeds(
      [](std::uint64_t seed) {
        SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
        const Network n(seed);
        if (!n.has_stream) return;
        n.dtype == DType::F32 ? check_export<float>(n, seed) : check_export<double>(n, seed);
      },
      6);
}

}  // namespace
}  // namespace hotloop::testing
