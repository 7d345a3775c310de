// Gradients of layers and losses against finite differences, in a random direction over parameters and input.
#include <algorithm>
#include <numeric>

#include "hotloop/transforms.h"
#include "nn/registry.h"
#include "nn_testing.h"
#include "registry_samples.h"
#include "user_cells.h"

namespace hotloop::testing {
namespace {

using namespace nn;

// arrays + step * direction
std::vector<Array> moved(const std::vector<Array>& arrays, const std::vector<Array>& direction, double step) {
  std::vector<Array> result;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    result.push_back(arrays[i].clone());
    for (std::int64_t k = 0; k < arrays[i].size(); ++k) result[i].set(k, arrays[i].at(k) + step * direction[i].at(k));
  }
  return result;
}

// fn: arrays -> scalar. Its directional derivative by value_and_grad and by central differences.
void check_gradient(const std::string& name, const TracedFunction& fn, const std::vector<Array>& arrays,
                    std::uint64_t seed) {
  SCOPED_TRACE(name + ", seed " + std::to_string(seed));
  std::vector<ValueType> types;
  std::vector<Array> direction;
  for (const Array& a : arrays) {
    types.push_back(a.type());
    direction.push_back(
        uniform(fold_in(seed, "direction" + std::to_string(direction.size())), a.shape(), a.dtype(), -1, 1));
  }
  std::vector<int> wanted(arrays.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  const std::vector<Array> results = ir::evaluate(*trace(value_and_grad(fn, wanted), types), arrays);
  double derivative = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    ASSERT_EQ(results[i + 1].type(), arrays[i].type());
    for (std::int64_t k = 0; k < arrays[i].size(); ++k) derivative += results[i + 1].at(k) * direction[i].at(k);
  }
  const auto graph = trace(fn, types);
  EXPECT_EQ(ir::evaluate(*graph, arrays)[0].at(0), results[0].at(0));
  constexpr double h = 1e-5;
  const double difference = (ir::evaluate(*graph, moved(arrays, direction, h))[0].at(0) -
                             ir::evaluate(*graph, moved(arrays, direction, -h))[0].at(0)) /
                            (2 * h);
  EXPECT_NEAR(derivative, difference, 1e-7 * std::max(1.0, std::abs(difference)));
  EXPECT_NE(derivative, 0) << "nothing was tested";
}

// In inference, and in training with a fixed key and unequal lengths where the input is a sequence.
void check_layer(const std::string& name, const Layer& layer, const Array& x, std::uint64_t seed) {
  const Tree<Array> params = layer.init(seed, DType::F64), buffers = layer.init_buffers(DType::F64);
  std::vector<Array> arrays = params.flatten();
  const std::size_t p = arrays.size();
  arrays.push_back(x);
  const ValueType output = layer.output_type(x.type());
  const Array cotangent = uniform(fold_in(seed, "cotangent"), output.shape, DType::F64, -1, 1);
  std::vector<std::int32_t> lengths;
  for (std::int64_t b = 0; b < x.shape()[0]; ++b)
    lengths.push_back(static_cast<std::int32_t>(x.shape()[1] - 2 * (b % 2)));
  for (const bool training : {false, true})
    check_gradient(
        name + (training ? " in training" : ""),
        [&](std::span<const Value> in) {
          Context context;
          context.buffers = buffers.map([](const Array& leaf) { return constant(leaf); });
          if (training) {
            context.key = constant(Array::from<std::uint32_t>({7, static_cast<std::uint32_t>(seed)}, {2}));
            context.lengths = constant(Array::from(lengths, {x.shape()[0]}));
          }
          const Value y = layer.apply(params.unflatten(in.first(p)), in[p], context);
          return std::vector<Value>{sum(y * constant(cotangent))};
        },
        arrays, seed);
}

TEST(NnGradients, EveryLayerOfTheRegistry) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    for (const LayerDef& def : all_layers()) {
      const Array x = uniform(fold_in(seed, "x"), {2, 5, 4}, DType::F64, -2, 2);
      check_layer(def.name, make_layer(sample_of(def), x.type()), x, seed);
    }
}

TEST(NnGradients, UserCellsAndStacks) {
  const std::vector<std::pair<std::string, Layer>> layers = {
      {"layer norm lstm", Recurrent(LayerNormLstmCell(4, 3))},
      {"coupled two-speed cell", Recurrent(CoupledTwoSpeedCell(4, 3))},
      {"gru reset before", GRU(4, 3, 1, Reset::Before)},
      {"rnn relu", RNN(4, 3, 1, Nonlinearity::Relu)},
      {"bidirectional stack with dropout", LSTM(4, 3, {.num_layers = 2, .bidirectional = true, .dropout = 0.3})},
      {"recurrent dropout", GRU(4, 3, {.recurrent_dropout = 0.4})},
      {"hard gates", LSTM(4, 3, {.gate = "hard_sigmoid_keras2", .activation = "softsign"})},
      {"bidirectional user cell", Bidirectional(Recurrent(CoupledTwoSpeedCell(4, 3)), Merge::Mul, false)},
      {"stack", Sequential(LSTM(4, 3, 2), LayerNorm(3), GRU(3, 2), Last(), Linear(2, 2), Activation("gelu"))}};
  for (std::uint64_t seed = 11; seed <= 12; ++seed)
    for (const auto& [name, layer] : layers)
      check_layer(name, layer, uniform(fold_in(seed, "x"), {2, 5, 4}, DType::F64, -2, 2), seed);
}

TEST(NnGradients, EveryLossOfTheRegistry) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    for (const losses::LossDef& def : losses::all_losses()) {
      const losses::Loss loss = losses::make_loss(def.name);
      const Array prediction = uniform(fold_in(seed, "p"), prediction_shape(loss, 4), DType::F64, 0.1, 0.9);
      const Array target = uniform(fold_in(seed, "t"), target_shape(loss, prediction.type()), DType::F64, 0, 1);
      const Array weights = uniform(fold_in(seed, "w"), {4}, DType::F64, 0.1, 2);
      check_gradient(
          def.name, [&](std::span<const Value> in) { return std::vector<Value>{loss(in[0], in[1])}; },
          {prediction, target}, seed);
      check_gradient(
          def.name + " weighted",
          [&](std::span<const Value> in) {
            return std::vector<Value>{loss(in[0], in[1], losses::Weights{.samples = in[2]}).loss};
          },
          {prediction, target, weights}, seed);
    }
}

// An optimiser's steps inside one scan are its steps one by one, bit for bit.
TEST(NnOptimizers, StepsInsideScan) {
  constexpr std::int64_t num_steps = 7;
  for (const auto& [name, optimizer] : sample_optimizers())
    for (DType dtype : {DType::F32, DType::F64}) {
      const Tree<Array> params = {{"w", uniform(1, {3, 2}, dtype, -1, 1)}, {"b", uniform(2, {2}, dtype, -1, 1)}};
      const Tree<Array> state = optimizer.init(params);
      const std::size_t p = params.num_leaves();
      std::vector<Array> arrays = params.flatten();
      for (const Array& a : state.flatten()) arrays.push_back(a);
      const auto step = [&](std::span<const Value> in) {
        const Tree<Value> now = params.unflatten(in.first(p));
        const Tree<Value> grads = now.map([](Value v) { return sin(3.0 * v); });
        const auto [next, next_state] = optimizer.update(grads, state.unflatten(in.subspan(p)), now);
        std::vector<Value> out = next.flatten();
        for (Value v : next_state.flatten()) out.push_back(v);
        return out;
      };
      const std::vector<Array> scanned = run_traced(
          [&](std::span<const Value> in) {
            ScanOptions options;
            options.length = num_steps;
            return scan([&](std::span<const Value> carry,
                            std::span<const Value>) { return std::pair(step(carry), std::vector<Value>{}); },
                        in, {}, options)
                .first;
          },
          arrays);
      std::vector<Array> single = arrays;
      for (std::int64_t i = 0; i < num_steps; ++i) single = run_traced(step, single);
      ASSERT_EQ(scanned.size(), single.size());
      for (std::size_t i = 0; i < single.size(); ++i)
        EXPECT_EQ(difference(scanned[i], single[i]), 0) << name << " " << i;
      EXPECT_NE(difference(single[0], arrays[0]), 0);
    }
}

}  // namespace
}  // namespace hotloop::testing
