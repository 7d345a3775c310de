#include "nn_testing.h"
#include "user_cells.h"

namespace hotloop::testing {
namespace {

using namespace nn;

Array random(std::uint64_t seed, const Shape& shape) { return uniform(seed, shape, DType::F64, -1, 1); }

Array steps_of(const Array& x, std::int64_t start, std::int64_t count) {
  const std::int64_t batch = x.shape()[0], time = x.shape()[1], features = x.shape()[2];
  Array out(x.dtype(), {batch, count, features});
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t i = 0; i < features; ++i)
        out.set((b * count + t) * features + i, x.at((b * time + start + t) * features + i));
  return out;
}

// The layers under test, with 2 inputs.
std::vector<std::pair<std::string, Layer>> recurrent_layers() {
  return {{"lstm", LSTM(2, 4)},
          {"lstm of two layers", LSTM(2, 4, 2)},
          {"gru reset after", GRU(2, 4)},
          {"gru reset before", GRU(2, 4, 2, Reset::Before)},
          {"rnn tanh", RNN(2, 4)},
          {"rnn relu", RNN(2, 4, 1, Nonlinearity::Relu)},
          {"layer norm lstm", Recurrent(LayerNormLstmCell(2, 4))},
          {"coupled two-speed cell", Recurrent(CoupledTwoSpeedCell(2, 4))},
          {"in a sequence", Sequential(LSTM(2, 4), Activation("tanh"), GRU(4, 3), Linear(3, 2))}};
}

Tree<Array> initial_arrays(const Layer& layer, std::int64_t batch) {
  Tree<Value> structure;
  const auto graph = trace(
      [&](std::span<const Value>) {
        structure = layer.initial_state(batch, DType::F64);
        return structure.flatten();
      },
      {});
  return structure.unflatten(ir::evaluate(*graph, {}));
}

TEST(Recurrent, SequencesKeepTheirBatchAndTime) {
  for (const auto& [name, layer] : recurrent_layers()) {
    const ValueType type = layer.output_type({DType::F32, {3, 5, 2}});
    EXPECT_EQ(type.shape.rank(), 3) << name;
    EXPECT_EQ(type.shape[0], 3) << name;
    EXPECT_EQ(type.shape[1], 5) << name;
  }
}

TEST(Recurrent, TwoPiecesWithTheStateCarriedOverAreTheWhole) {
  for (const auto& [name, layer] : recurrent_layers()) {
    const Tree<Array> params = layer.init(5, DType::F64);
    const Array x = random(6, {3, 5, 2});
    const Array whole = apply_on(layer, params, x)[0];
    const Tree<Array> start = initial_arrays(layer, 3);
    ASSERT_FALSE(start.empty()) << name;
    const std::vector<Array> first = apply_on(layer, params, steps_of(x, 0, 2), &start);
    EXPECT_EQ(difference(first[0], steps_of(whole, 0, 2)), 0) << name;
    const Tree<Array> middle = start.unflatten(std::span(first).subspan(1));
    const std::vector<Array> second = apply_on(layer, params, steps_of(x, 2, 3), &middle);
    EXPECT_EQ(difference(second[0], steps_of(whole, 2, 3)), 0) << name;
  }
}

TEST(Recurrent, ASampleDoesNotDependOnItsBatch) {
  for (const auto& [name, layer] : recurrent_layers()) {
    const Tree<Array> params = layer.init(5, DType::F64);
    const Array x = random(7, {3, 5, 2});
    const Array together = apply_on(layer, params, x)[0];
    const std::int64_t per_sample = together.size() / 3;
    for (std::int64_t b = 0; b < 3; ++b) {
      Array one(DType::F64, {1, 5, 2});
      for (std::int64_t i = 0; i < 10; ++i) one.set(i, x.at(b * 10 + i));
      const Array alone = apply_on(layer, params, one)[0];
      for (std::int64_t i = 0; i < per_sample; ++i) EXPECT_EQ(alone.at(i), together.at(b * per_sample + i)) << name;
    }
  }
}

TEST(Recurrent, BothGruResetsAgreeWhereTheyMust) {
  // With an identity as the candidate's recurrent weight and no bias there, r * (W h) = W (r * h).
  Tree<Array> params = GRU(2, 4).init(1, DType::F64);
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) params["weight_hh_l0"].set((8 + i) * 4 + j, i == j ? 0.7 : 0);
    params["bias_hh_l0"].set(8 + i, 0);
  }
  const Array x = random(2, {3, 5, 2});
  EXPECT_LE(difference(apply_on(GRU(2, 4), params, x)[0], apply_on(GRU(2, 4, 1, Reset::Before), params, x)[0]), 1e-15);
  params["weight_hh_l0"].set(8 * 4 + 1, 0.5);
  EXPECT_GT(difference(apply_on(GRU(2, 4), params, x)[0], apply_on(GRU(2, 4, 1, Reset::Before), params, x)[0]), 1e-4);
}

TEST(Recurrent, AUsersCellFollowsItsFormulas) {
  // The coupled cell at one unit and one step, by hand.
  const Recurrent layer(CoupledTwoSpeedCell(1, 1));
  const Tree<Array> p = layer.init(3, DType::F64);
  const auto w = [&](const std::string& name) { return p[name].at(0); };
  const double x = 0.3;
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const double f = sigmoid(w("W_f") * x + w("b_f"));
  const double fast = (1 - f) * (std::log1p(std::exp(w("W_g") * x + w("b_g"))) - 0.69);
  const double slow = sigmoid(w("rate")) * 0.5 + (1 - sigmoid(w("rate"))) * fast;
  const double h = sigmoid(w("W_o") * x + w("b_o") + w("peep_o") * fast) * std::tanh(fast - slow);
  const Array y = apply_on(layer, p, Array::from<double>({x}, {1, 1, 1}))[0];
  ASSERT_EQ(y.shape(), (Shape{1, 1, 2}));
  EXPECT_NEAR(y.at(0), h, 1e-15);
  EXPECT_NEAR(y.at(1), slow, 1e-15);
}

TEST(Recurrent, TheBodyIsTracedOnceWhateverTheLength) {
  const LSTM layer(2, 4);
  const Tree<Array> params = layer.init(0);
  const auto nodes_at = [&](std::int64_t steps) {
    std::vector<ValueType> types;
    for (const Array& leaf : params.flatten()) types.push_back(leaf.type());
    types.push_back({DType::F32, {3, steps, 2}});
    return trace(
               [&](std::span<const Value> in) {
                 return std::vector<Value>{layer.apply(params.unflatten(in.first(4)), in[4])};
               },
               types)
        ->nodes()
        .size();
  };
  EXPECT_EQ(nodes_at(2), nodes_at(500));
}

}  // namespace
}  // namespace hotloop::testing
