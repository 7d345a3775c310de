#include <algorithm>
#include <limits>
#include <set>

#include "hotloop/transforms.h"
#include "nn/registry.h"
#include "nn_testing.h"
#include "registry_samples.h"
#include "user_cells.h"

namespace hotloop::testing {
namespace {

using namespace nn;
using Names = std::vector<std::string>;

Array random(std::uint64_t seed, const Shape& shape, DType dtype = DType::F64) {
  return uniform(seed, shape, dtype, -1, 1);
}

std::vector<std::string> types_of(const Tree<Array>& tree) {
  std::vector<std::string> types;
  for (const Array& leaf : tree.flatten()) types.push_back(leaf.type().str());
  return types;
}

TEST(Layers, ParameterNamesAndShapesArePyTorchs) {
  const Tree<Array> lstm = LSTM(7, 32).init(0);
  EXPECT_EQ(lstm.names(), (Names{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}));
  EXPECT_EQ(types_of(lstm), (Names{"f32[128,7]", "f32[128,32]", "f32[128]", "f32[128]"}));
  EXPECT_EQ(types_of(GRU(7, 32).init(0)), (Names{"f32[96,7]", "f32[96,32]", "f32[96]", "f32[96]"}));
  EXPECT_EQ(types_of(RNN(7, 32).init(0, DType::F64)), (Names{"f64[32,7]", "f64[32,32]", "f64[32]", "f64[32]"}));
  EXPECT_EQ(LSTM(7, 32, 2).init(0).names(), (Names{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                                                   "weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1"}));
  EXPECT_EQ(LSTM(7, 32, 2).init(0)["weight_ih_l1"].type().str(), "f32[128,32]");
  EXPECT_EQ(types_of(Linear(7, 3).init(0)), (Names{"f32[3,7]", "f32[3]"}));
  EXPECT_EQ(Linear(7, 3, false).init(0).names(), Names{"weight"});
  EXPECT_EQ(Sequential(LSTM(7, 32), Last(), Linear(32, 1)).init(0).names(),
            (Names{"0.weight_ih_l0", "0.weight_hh_l0", "0.bias_ih_l0", "0.bias_hh_l0", "2.weight", "2.bias"}));
}

TEST(Layers, TorchInitIsUniformInOneOverRootHidden) {
  const Tree<Array> params = LSTM(7, 16).init(3, DType::F64);
  std::set<double> seen;
  for (const Array& leaf : params.flatten()) {
    double high = 0;
    for (double v : leaf.data<double>()) {
      high = std::max(high, std::abs(v));
      seen.insert(v);
    }
    EXPECT_LE(high, 0.25);
    EXPECT_GT(high, 0.23);
  }
  EXPECT_EQ(seen.size(), 64u * (7 + 16 + 2)) << "parameters share a stream";
}

TEST(Layers, ALayersParametersDoNotDependOnItsNeighbours) {
  const Tree<Array> a = Sequential(Linear(4, 5), Linear(5, 3)).init(9), b = Sequential(Linear(4, 5)).init(9);
  EXPECT_EQ(difference(a["0.weight"], b["0.weight"]), 0);
  EXPECT_NE(difference(a["0.weight"], Sequential(Linear(4, 5)).init(10)["0.weight"]), 0);
}

TEST(Layers, KerasInit) {
  const Tree<Array> lstm = LSTM(5, 4).init(1, DType::F64, Init::Keras);
  EXPECT_EQ(lstm.names(), (Names{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0"}));
  for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(lstm["bias_ih_l0"].at(i), i >= 4 && i < 8 ? 1 : 0);
  // Orthonormal columns of weight_hh are the orthonormal rows of Keras' recurrent kernel.
  const Array& w = lstm["weight_hh_l0"];
  for (std::int64_t a = 0; a < 4; ++a)
    for (std::int64_t b = 0; b < 4; ++b) {
      double product = 0;
      for (std::int64_t i = 0; i < 16; ++i) product += w.at(i * 4 + a) * w.at(i * 4 + b);
      EXPECT_NEAR(product, a == b, 1e-14);
    }
  EXPECT_TRUE(GRU(5, 4).init(1, DType::F32, Init::Keras).has("bias_hh_l0"));
  EXPECT_FALSE(GRU(5, 4, 1, Reset::Before).init(1, DType::F32, Init::Keras).has("bias_hh_l0"));
  EXPECT_EQ(Linear(5, 4).init(1, DType::F32, Init::Keras)["bias"].at(2), 0);
}

TEST(Layers, LinearWorksOnTheLastAxisOfAnyRank) {
  const Linear layer(4, 3);
  const Tree<Array> params = layer.init(0, DType::F64);
  for (const Shape& shape : {Shape{4}, Shape{2, 4}, Shape{2, 5, 4}}) {
    const Array x = random(1, shape);
    const Array y = apply_on(layer, params, x)[0];
    ASSERT_EQ(y.shape()[shape.rank() - 1], 3);
    for (std::int64_t row = 0; row < x.size() / 4; ++row)
      for (std::int64_t o = 0; o < 3; ++o) {
        double expected = params["bias"].at(o);
        for (std::int64_t i = 0; i < 4; ++i) expected += x.at(row * 4 + i) * params["weight"].at(o * 4 + i);
        EXPECT_NEAR(y.at(row * 3 + o), expected, 1e-14);
      }
  }
}

TEST(Layers, LayerNormNormalises) {
  const LayerNorm layer(6, 0);
  const Array y = apply_on(layer, layer.init(0, DType::F64), random(2, {3, 2, 6}))[0];
  for (std::int64_t row = 0; row < 6; ++row) {
    double total = 0, square = 0;
    for (std::int64_t i = 0; i < 6; ++i) total += y.at(row * 6 + i), square += y.at(row * 6 + i) * y.at(row * 6 + i);
    EXPECT_NEAR(total, 0, 1e-13);
    EXPECT_NEAR(square, 6, 1e-12);
  }
}

TEST(Layers, ActivationsAreTheirFunctions) {
  const Array x = Array::from<double>({-2.6, -0.5, 0, 0.5, 2.9}, {5});
  const std::map<std::string, double (*)(double)> functions = {
      {"tanh", [](double v) { return std::tanh(v); }},
      {"relu", [](double v) { return std::max(v, 0.0); }},
      {"relu6", [](double v) { return std::clamp(v, 0.0, 6.0); }},
      {"sigmoid", [](double v) { return 1 / (1 + std::exp(-v)); }},
      {"gelu", [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); }},
      {"gelu_tanh",
       [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); }},
      {"softplus", [](double v) { return std::log1p(std::exp(v)); }},
      {"softsign", [](double v) { return v / (1 + std::abs(v)); }},
      {"silu", [](double v) { return v / (1 + std::exp(-v)); }},
      {"mish", [](double v) { return v * std::tanh(std::log1p(std::exp(v))); }},
      {"exponential", [](double v) { return std::exp(v); }},
      {"elu", [](double v) { return v > 0 ? v : std::expm1(v); }},
      {"selu", [](double v) { return 1.0507009873554805 * (v > 0 ? v : 1.6732632423543772 * std::expm1(v)); }},
      {"leaky_relu", [](double v) { return v > 0 ? v : 0.01 * v; }},
      {"hard_tanh", [](double v) { return std::clamp(v, -1.0, 1.0); }},
      {"hard_sigmoid_keras2", [](double v) { return std::clamp(0.2 * v + 0.5, 0.0, 1.0); }},
      {"hard_sigmoid_keras3", [](double v) { return std::clamp(v / 6 + 0.5, 0.0, 1.0); }}};
  for (const auto& [name, function] : functions) {
    const Array y = apply_on(Activation(name), {}, x)[0];
    for (std::int64_t i = 0; i < 5; ++i) EXPECT_NEAR(y.at(i), function(x.at(i)), 4e-15) << name;
  }
}

// As PyTorch has it, and relu at 0.
TEST(Layers, WhatIsLimitedHasNoSlopeAtItsEnds) {
  const std::vector<std::tuple<const char*, double, double, double>> limited = {
      {"relu6", 0, 6, 1},
      {"hard_tanh", -1, 1, 1},
      {"hard_sigmoid_keras2", -2.5, 2.5, 0.2},
      {"hard_sigmoid_keras3", -3, 3, 1.0 / 6}};
  for (const auto& [name, low, high, slope] : limited) {
    const Activation layer(name);
    const auto gradient =
        grad([&](std::span<const Value> in) { return std::vector<Value>{sum(layer.apply({}, in[0]))}; }, {0});
    const Array g =
        run_traced(gradient, {Array::from<double>({low - 1, low, low / 2 + high / 2, high, high + 1}, {5})})[0];
    for (const std::int64_t i : {0, 1, 3, 4}) EXPECT_EQ(g.at(i), 0) << name << ", " << i;
    EXPECT_DOUBLE_EQ(g.at(2), slope) << name;
    EXPECT_TRUE(std::isnan(apply_on(layer, {}, Array::from<double>({std::nan("")}, {1}))[0].at(0))) << name;
  }
}

TEST(Layers, LastTakesTheLastStep) {
  const Array x = random(3, {2, 4, 3});
  const Array y = apply_on(Last(), {}, x)[0];
  ASSERT_EQ(y.shape(), (Shape{2, 3}));
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(y.at(b * 3 + i), x.at((b * 4 + 3) * 3 + i));
}

TEST(Layers, AnIdOutOfRangeIsTakenForTheNearestWhateverItsDtype) {
  const Array weight = Array::from<double>({10, 11, 12}, {3, 1});
  const Embedding layer(3, 1, 1);
  const Array ids =
      Array::from<std::int64_t>({4294967297, -4294967295, 1, std::numeric_limits<std::int64_t>::max()}, {4});
  const Array y = apply_on(layer, {{"weight", weight}}, ids)[0];
  for (std::int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(y.at(i), std::vector<double>({12, 10, 11, 12})[static_cast<std::size_t>(i)]);
  const Array above = Array::from<std::uint32_t>({4294967295u, 2147483649u}, {2});
  EXPECT_EQ(apply_on(layer, {{"weight", weight}}, above)[0].at(0), 12);
  EXPECT_EQ(apply_on(layer, {{"weight", weight}}, above)[0].at(1), 12);
  // 2^32 + 1 is not the padding, 1.
  const TracedFunction summed = [&](std::span<const Value> in) {
    return std::vector<Value>{sum(layer.apply({{"weight", in[0]}}, in[1]))};
  };
  const Array slope = run_traced(grad(summed, {0}), {weight, ids})[0];
  EXPECT_EQ(slope.at(1), 0);
  EXPECT_EQ(slope.at(2), 2);
}

TEST(Layers, OutputTypeFollowsTheInput) {
  EXPECT_EQ(Linear(4, 3).output_type({DType::F64, {2, 5, 4}}).str(), "f64[2,5,3]");
  EXPECT_EQ(Sequential(Last(), Linear(4, 3)).output_type({DType::F32, {2, 5, 4}}).str(), "f32[2,3]");
}

TEST(LayerRegistry, EveryLayerIsDescribedAndCanBeMade) {
  std::set<std::string> names;
  for (const LayerDef& def : all_layers()) {
    names.insert(def.name);
    EXPECT_FALSE(def.summary.empty()) << def.name;
    for (const Parameter& p : def.parameters) EXPECT_FALSE(p.doc.empty()) << def.name << "." << p.name;
    const ValueType input{DType::F32, {2, 5, 4}};
    const ValueType output = make_layer(sample_of(def), input).output_type(input);
    EXPECT_EQ(output.dtype, DType::F32) << def.name;
    EXPECT_EQ(output.shape[0], 2) << def.name;
  }
  for (const char* name :
       {"lstm", "gru", "rnn", "linear", "layer_norm", "last", "tanh", "relu", "sigmoid", "gelu", "softplus"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(LayerRegistry, AModelIsMadeLayerByLayer) {
  const std::vector<LayerConfig> stack = {
      {"lstm", {{"hidden", std::int64_t{8}}}}, {"last", {}}, {"linear", {{"units", std::int64_t{2}}}}};
  const ValueType input{DType::F32, {3, 6, 5}};
  const Layer model = make_model(stack, input);
  EXPECT_EQ(model.init(0).names(),
            (Names{"0.weight_ih_l0", "0.weight_hh_l0", "0.bias_ih_l0", "0.bias_hh_l0", "2.weight", "2.bias"}));
  EXPECT_EQ(model.init(0)["0.weight_ih_l0"].type().str(), "f32[32,5]");
  EXPECT_EQ(model.output_type(input).str(), "f32[3,2]");
}

}  // namespace
}  // namespace hotloop::testing
