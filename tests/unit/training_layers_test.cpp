// Layers whose training differs from inference, and layers on sequences of unequal lengths.
#include <cstring>

#include "hotloop/train.h"
#include "nn_testing.h"
#include "user_cells.h"

namespace hotloop::testing {
namespace {

using namespace nn;

struct Given {
  Array key = {}, lengths = {};
  Tree<Array> buffers = {};
};

// y, then the buffers after.
std::vector<Array> apply_with(const Layer& layer, const Tree<Array>& params, const Array& x, const Given& given,
                              const Backend& backend = all_backends().front()) {
  std::vector<Array> arrays = params.flatten();
  const std::size_t p = arrays.size();
  arrays.push_back(x);
  for (const Array& leaf : given.buffers.flatten()) arrays.push_back(leaf);
  return run_traced(
      [&](std::span<const Value> in) {
        Context context;
        if (given.key.defined()) context.key = constant(given.key);
        if (given.lengths.defined()) context.lengths = constant(given.lengths);
        context.buffers = given.buffers.unflatten(in.subspan(p + 1));
        std::vector<Value> out = {layer.apply(params.unflatten(in.first(p)), in[p], context)};
        for (const Value v : context.buffers.flatten()) out.push_back(v);
        return out;
      },
      arrays, backend);
}

Array random(std::uint64_t seed, const Shape& shape) { return uniform(seed, shape, DType::F64, -1, 1); }
Array key(std::uint64_t step) { return train::step_key(3, step); }

TEST(Dropout, KeepsTheRateAndTheMean) {
  const Array ones = Array::full(DType::F32, {400, 50}, 1);
  for (const double rate : {0.1, 0.5, 0.8}) {
    const Array y = apply_with(Dropout(rate), {}, ones, {.key = key(0)})[0];
    double zeros = 0, total = 0;
    for (std::int64_t i = 0; i < y.size(); ++i) {
      EXPECT_TRUE(y.at(i) == 0 || std::abs(y.at(i) - 1 / (1 - rate)) < 1e-6);
      zeros += y.at(i) == 0;
      total += y.at(i);
    }
    // Five standard deviations of a binomial share of 20000.
    const double deviation = std::sqrt(rate * (1 - rate) / 20000);
    EXPECT_NEAR(zeros / 20000, rate, 5 * deviation);
    EXPECT_NEAR(total / 20000, 1, 5 * deviation / (1 - rate));
  }
}

TEST(Dropout, IsAFunctionOfTheKeyWhateverTheBackendAndTheBatch) {
  const Array x = random(1, {9, 4, 3});
  const Array y = apply_with(Dropout(0.4), {}, x, {.key = key(0)})[0];
  for (const Backend& backend : all_backends())
    EXPECT_EQ(difference(apply_with(Dropout(0.4), {}, x, {.key = key(0)}, backend)[0], y), 0) << backend.name;
  EXPECT_GT(difference(apply_with(Dropout(0.4), {}, x, {.key = key(1)})[0], y), 0);
  Array first(DType::F64, {2, 4, 3});
  std::memcpy(first.raw(), x.raw(), first.bytes());
  const Array alone = apply_with(Dropout(0.4), {}, first, {.key = key(0)})[0];
  EXPECT_EQ(std::memcmp(alone.raw(), y.raw(), alone.bytes()), 0);
}

TEST(Dropout, LayersOfOneModelDrawApart) {
  const Array ones = Array::full(DType::F64, {1, 400}, 1);
  const Array twice = apply_with(Sequential(Dropout(0.5), Dropout(0.5)), {}, ones, {.key = key(0)})[0];
  double kept = 0;
  for (std::int64_t i = 0; i < 400; ++i) kept += twice.at(i) != 0;
  EXPECT_NEAR(kept / 400, 0.25, 0.11);  // one mask for both would keep a half
}

TEST(Dropout, SameOverTimeIsOneMaskForAllSteps) {
  const Array y = apply_with(Dropout(0.5, true), {}, Array::full(DType::F64, {3, 5, 8}, 1), {.key = key(0)})[0];
  for (std::int64_t b = 0; b < 3; ++b)
    for (std::int64_t t = 1; t < 5; ++t)
      for (std::int64_t i = 0; i < 8; ++i) EXPECT_EQ(y.at((b * 5 + t) * 8 + i), y.at(b * 40 + i));
}

TEST(Dropout, InferenceIsTheIdentityAndTrainingNeedsAKey) {
  const Array x = random(1, {3, 4});
  EXPECT_EQ(difference(apply_with(Dropout(0.5), {}, x, {})[0], x), 0);
  EXPECT_EQ(message_of([] {
              const ValueType type{DType::F32, {2, 3}};
              trace(
                  [](std::span<const Value> in) {
                    Context context;
                    context.training = true;
                    return std::vector<Value>{Dropout(0.5).apply({}, in[0], context)};
                  },
                  {&type, 1});
            }),
            "[dropout] training needs a key to draw random numbers from. Received: none. Try: a key for the call: "
            "key=hl.random.key(0) from Python; StepOptions::key, or a Context with a key, in C++.");
}

TEST(Dropout, RecurrentDropoutLeavesTheCarriedStateWhole) {
  // Without weights no product reads h: dropping it changes nothing.
  Tree<Array> params = LSTM(1, 6).init(1, DType::F64);
  for (const char* name : {"weight_ih_l0", "weight_hh_l0", "bias_hh_l0"})
    params[name] = Array::zeros(DType::F64, params[name].shape());
  const Array x = random(2, {2, 5, 1});
  const Layer dropped = LSTM(1, 6, {.recurrent_dropout = 0.5});
  EXPECT_EQ(difference(apply_with(dropped, params, x, {.key = key(0)})[0], apply_on(LSTM(1, 6), params, x)[0]), 0);
  const Tree<Array> trained = LSTM(1, 6).init(1, DType::F64);
  EXPECT_GT(difference(apply_with(dropped, trained, x, {.key = key(0)})[0], apply_on(LSTM(1, 6), trained, x)[0]), 1e-3);
  EXPECT_EQ(difference(apply_with(dropped, trained, x, {})[0], apply_on(LSTM(1, 6), trained, x)[0]), 0);
}

TEST(BatchNorm, NormalisesTheValidStepsAlone) {
  const BatchNorm layer(2, {.momentum = 1, .epsilon = 0, .unbiased = false});
  const Array lengths = Array::from<std::int32_t>({3, 1}, {2});
  Array x = random(1, {2, 3, 2});
  const std::vector<Array> out =
      apply_with(layer, layer.init(0, DType::F64), x,
                 {.key = key(0), .lengths = lengths, .buffers = layer.init_buffers(DType::F64)});
  for (std::int64_t f = 0; f < 2; ++f) {
    double mean = 0, square = 0;
    for (const std::int64_t row : {0, 1, 2, 3}) {  // steps 0, 1, 2 of the first row and 0 of the second
      mean += out[0].at(row * 2 + f) / 4;
      square += out[0].at(row * 2 + f) * out[0].at(row * 2 + f) / 4;
    }
    EXPECT_NEAR(mean, 0, 1e-14);
    EXPECT_NEAR(square, 1, 1e-13);
  }
  EXPECT_EQ(out[3].at(0), 1);
  // With a momentum of 1 the running moments are the batch's: inference on it is training on it.
  const Tree<Array> after = layer.init_buffers(DType::F64).unflatten(std::span(out).subspan(1));
  const Array inferred = apply_with(layer, layer.init(0, DType::F64), x, {.lengths = lengths, .buffers = after})[0];
  EXPECT_LE(difference(inferred, out[0]), 1e-14);
}

TEST(BatchNorm, ABatchWithoutAStepChangesNothing) {
  const BatchNorm layer(2);
  const Tree<Array> before = {{"running_mean", Array::full(DType::F64, {2}, 3)},
                              {"running_var", Array::full(DType::F64, {2}, 5)},
                              {"num_batches_tracked", Array::scalar<std::int64_t>(4)}};
  const auto out = apply_with(layer, layer.init(0, DType::F64), random(1, {2, 3, 2}),
                              {.key = key(0), .lengths = Array::from<std::int32_t>({0, 0}, {2}), .buffers = before});
  const std::vector<Array> kept = before.flatten();
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(difference(out[1 + i], kept[i]), 0) << before.names()[i];
}

TEST(BatchNorm, NeedsItsBuffers) {
  const BatchNorm layer(2);
  EXPECT_EQ(
      message_of([&] {
        apply_with(layer, layer.init(0, DType::F64), random(1, {3, 2}), {});
      }),
      "[batch_norm] the running mean and variance must be given. Received: none. Try: buffers = run.buffers, which "
      "training gave with the parameters, or the model's init_buffers().");
}

TEST(Lengths, PoolingAndLastLeaveTheRestOut) {
  const Array x = Array::from<double>({1, 5, 9, 2, -4, 100}, {2, 3, 1});
  const Given given{.lengths = Array::from<std::int32_t>({3, 2}, {2})};
  const auto of = [&](const Layer& layer) {
    const Array y = apply_with(layer, {}, x, given)[0];
    return std::pair(y.at(0), y.at(1));
  };
  EXPECT_EQ(of(Last()), std::pair(9.0, -4.0));
  EXPECT_EQ(of(MeanPool()), std::pair(5.0, -1.0));
  EXPECT_EQ(of(MaxPool()), std::pair(9.0, 2.0));
}

// The reverse direction of each row is that row reversed within its length, and reversed back.
TEST(Bidirectional, ReversesInsideTheLength) {
  const Layer cell = Recurrent(CoupledTwoSpeedCell(3, 2));
  const Bidirectional both(cell);
  const Tree<Array> params = both.init(5, DType::F64);
  Tree<Array> reverse_params;
  for (const auto& [name, child] : params.children())
    if (name.ends_with("_reverse")) reverse_params.set(name.substr(0, name.size() - 8), child);
  const Array x = random(1, {2, 4, 3});
  const std::int32_t lengths[] = {4, 2};
  const Array y = apply_with(both, params, x, {.lengths = Array::from<std::int32_t>({4, 2}, {2})})[0];
  ASSERT_EQ(y.shape(), (Shape{2, 4, 8}));
  for (std::int64_t b = 0; b < 2; ++b) {
    const std::int64_t n = lengths[b];
    Array reversed(DType::F64, {1, n, 3});
    for (std::int64_t t = 0; t < n; ++t)
      for (std::int64_t i = 0; i < 3; ++i) reversed.set(t * 3 + i, x.at((b * 4 + n - 1 - t) * 3 + i));
    const Array wanted = apply_on(cell, reverse_params, reversed)[0];
    for (std::int64_t t = 0; t < 4; ++t)
      for (std::int64_t i = 0; i < 4; ++i)
        EXPECT_NEAR(y.at((b * 4 + t) * 8 + 4 + i), t < n ? wanted.at((n - 1 - t) * 4 + i) : 0, 1e-15) << b << " " << t;
  }
}

TEST(Embedding, TakesRowsAndTrainsOnlyThem) {
  const Embedding layer(4, 2, 3);
  const Tree<Array> params = layer.init(1, DType::F64);
  EXPECT_EQ(params["weight"].at(6), 0);
  EXPECT_EQ(params["weight"].at(7), 0);
  for (const Array& ids : {Array::from<std::int32_t>({2, 0, 9}, {3}), Array::from<double>({2, 0, 9}, {3})}) {
    const Array y = apply_on(layer, params, ids)[0];
    ASSERT_EQ(y.type().str(), "f64[3,2]");
    for (std::int64_t i = 0; i < 2; ++i) {
      EXPECT_EQ(y.at(i), params["weight"].at(4 + i));
      EXPECT_EQ(y.at(2 + i), params["weight"].at(i));
      EXPECT_EQ(y.at(4 + i), params["weight"].at(6 + i));  // beyond the last: the last
    }
  }
  EXPECT_EQ(layer.output_type({DType::I32, {5, 7}}).str(), "f32[5,7,2]");
  const Layer feature = Embedding::of_feature(1, 4, 2);
  const Array row = apply_on(feature, params, Array::from<double>({7, 2, 8}, {1, 3}))[0];
  EXPECT_EQ(row.at(0), 7);
  EXPECT_EQ(row.at(1), 8);
  EXPECT_EQ(row.at(3), params["weight"].at(5));
}

TEST(Stacks, EachLayerHasItsWidthAndItsInitialState) {
  const Sequential model(LSTM(3, 6), GRU(6, 4), RNN(4, 2), Flatten());
  const Tree<Array> params = model.init(1, DType::F64);
  EXPECT_EQ(params["0.weight_ih_l0"].type().str(), "f64[24,3]");
  EXPECT_EQ(params["1.weight_ih_l0"].type().str(), "f64[12,6]");
  EXPECT_EQ(params["2.weight_ih_l0"].type().str(), "f64[2,4]");
  EXPECT_EQ(apply_on(model, params, random(1, {5, 3, 3}))[0].shape(), (Shape{5, 6}));
  const Tree<Array> state = {{"0", {{"h", random(2, {5, 6})}, {"c", random(3, {5, 6})}}},
                             {"1", {{"h", random(4, {5, 4})}}},
                             {"2", {{"h", random(5, {5, 2})}}}};
  const std::vector<Array> out = apply_on(model, params, random(1, {5, 3, 3}), &state);
  ASSERT_EQ(out.size(), 5u);
  EXPECT_GT(difference(out[0], apply_on(model, params, random(1, {5, 3, 3}))[0]), 1e-3);
}

TEST(Residual, AddsAndRefusesAnotherShape) {
  const Residual layer(Sequential(Linear(3, 5), Activation("tanh"), Linear(5, 3)));
  const Tree<Array> params = layer.init(1, DType::F64);
  const Array x = random(1, {2, 3});
  const Array inner = apply_on(Sequential(Linear(3, 5), Activation("tanh"), Linear(5, 3)), params, x)[0];
  const Array y = apply_on(layer, params, x)[0];
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(y.at(i), x.at(i) + inner.at(i));
  EXPECT_EQ(
      message_of([] {
        Residual(Linear(3, 5)).output_type({DType::F32, {2, 3}});
      }),
      "[residual] the layers inside must keep the shape of their input. Received: f32[2,3] becomes f32[2,5]. Try: a "
      "linear layer to bring it back.");
}

}  // namespace
}  // namespace hotloop::testing
