// What a training step takes besides parameters and a batch: keys, lengths, weights, buffers; and many steps in one call.
#include "hotloop/train.h"

#include <cstring>

#include "nn_testing.h"

namespace hotloop::testing {
namespace {

using namespace nn;
using train::Step;
using train::StepData;
using train::StepOptions;

// Multiplies by 0 or 1 at random when training, and counts the training calls in a buffer.
class NoisyModule : public Module {
 public:
  Tree<Array> init(const Seed&, DType, Init) const override { return {}; }
  Tree<Array> init_buffers(DType) const override { return {{"calls", Array::scalar<std::int64_t>(0)}}; }
  Value apply(const Tree<Value>&, Value x, Context& context) const override {
    if (!context.is_training()) return x;
    context.buffers.set("calls", context.buffers["calls"] + constant(1, DType::I64));
    const Value bits = bit_and(random_bits(context.key, x.shape()), constant(1, DType::U32));
    return x * cast(bits, x.dtype());
  }
};

// Parameters, state and buffers of a run, and its steps on a backend.
struct Training {
  Training(const Layer& layer, const losses::Loss& loss, StepOptions options, const ValueType& x, const ValueType& y)
      : params(layer.init(3, DType::F64)), state(optimizer.init(params)), buffers(layer.init_buffers(DType::F64)) {
    options.buffers = buffers;
    step = train::train_step(layer, loss, optimizer, params, state, x, y, options);
  }
  void take(const std::vector<Array>& out) {
    params = params.unflatten(std::span(out).first(step.num_params));
    state = state.unflatten(std::span(out).subspan(step.num_params, step.num_state));
    buffers = buffers.unflatten(std::span(out).subspan(step.num_params + step.num_state, step.num_buffers));
    loss = out[step.num_carried()].at(0);
    if (step.weighted) total = out[step.num_carried() + 1].at(0);
  }
  void run(const StepData& data, const Backend& backend = all_backends().front()) {
    take(backend.run(step.graph(), step.arguments(params, state, buffers, data)));
  }

  optim::Adam optimizer{0.05};
  Tree<Array> params, state, buffers;
  Step step;
  double loss = 0, total = 0;
};

Array random(std::uint64_t seed, const Shape& shape) { return uniform(seed, shape, DType::F64, -1, 1); }

bool same_bits(const Tree<Array>& a, const Tree<Array>& b) {
  const std::vector<Array> x = a.flatten(), y = b.flatten();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i].type() != y[i].type() || std::memcmp(x[i].raw(), y[i].raw(), x[i].bytes()) != 0) return false;
  return x.size() == y.size();
}

double loss_of(const losses::Loss& loss, const Array& prediction, const Array& target) {
  return run_traced([&](std::span<const Value> in) { return std::vector<Value>{loss(in[0], in[1])}; },
                    {prediction, target})[0]
      .at(0);
}

const Sequential lstm(LSTM(3, 4), Last(), Linear(4, 2));

// A row with fewer steps is that row alone, cut.
TEST(TrainStep, LengthsCutEachRow) {
  const Array x = random(1, {3, 6, 3}), y = random(2, {3, 2});
  const Array lengths = Array::from<std::int32_t>({6, 1, 4}, {3});
  for (const Backend& backend : all_backends()) {
    SCOPED_TRACE(backend.name);
    Training run(lstm, losses::MSE(), {.lengths = true}, x.type(), y.type());
    double expected = 0;
    for (std::int64_t b = 0; b < 3; ++b) {
      const auto steps = static_cast<std::int64_t>(lengths.at(b));
      Array row(DType::F64, {1, steps, 3}), target(DType::F64, {1, 2});
      for (std::int64_t i = 0; i < row.size(); ++i) row.set(i, x.at(b * 18 + i));
      for (std::int64_t i = 0; i < 2; ++i) target.set(i, y.at(b * 2 + i));
      expected += loss_of(losses::MSE(), apply_on(lstm, run.params, row)[0], target) / 3;
    }
    run.run({.x = x, .y = y, .lengths = lengths}, backend);
    EXPECT_NEAR(run.loss, expected, 1e-14);
    EXPECT_EQ(run.total, 3);
  }
}

TEST(TrainStep, WhatLiesBeyondARowsStepsDoesNotMatter) {
  const Layer many_to_many = Sequential(LSTM(3, 4), Linear(4, 2));
  Array x = random(1, {2, 5, 3}), y = random(2, {2, 5, 2});
  const Array lengths = Array::from<std::int32_t>({5, 2}, {2});
  for (const Backend& backend : all_backends()) {
    SCOPED_TRACE(backend.name);
    Training a(many_to_many, losses::MSE(), {.lengths = true}, x.type(), y.type()), b = a;
    a.run({.x = x, .y = y, .lengths = lengths}, backend);
    Array other_x = x.clone(), other_y = y.clone();
    for (std::int64_t i = (5 + 2) * 3; i < 30; ++i) other_x.set(i, 1e3);
    for (std::int64_t i = (5 + 2) * 2; i < 20; ++i) other_y.set(i, -1e3);
    b.run({.x = other_x, .y = other_y, .lengths = lengths}, backend);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.total, (5 + 2) * 2);
    EXPECT_TRUE(same_bits(a.params, b.params));
  }
}

TEST(TrainStep, AWeightIsARepetition) {
  const Array x = random(1, {2, 4, 3}), y = random(2, {2, 2});
  Array x3(DType::F64, {3, 4, 3}), y3(DType::F64, {3, 2});  // the second row twice
  for (std::int64_t i = 0; i < x3.size(); ++i) x3.set(i, x.at(i < 24 ? i : i - 12));
  for (std::int64_t i = 0; i < y3.size(); ++i) y3.set(i, y.at(i < 4 ? i : i - 2));
  Training weighted(lstm, losses::MSE(), {.sample_weights = true}, x.type(), y.type());
  Training repeated(lstm, losses::MSE(), {}, x3.type(), y3.type());
  weighted.run({.x = x, .y = y, .sample_weights = Array::from<double>({1, 2}, {2})});
  repeated.run({.x = x3, .y = y3});
  EXPECT_NEAR(weighted.loss, repeated.loss, 1e-15);
  for (const std::string& name : weighted.params.names())
    EXPECT_LE(difference(weighted.params[name], repeated.params[name]), 1e-9) << name;
  EXPECT_EQ(weighted.total, 6);  // two numbers a target
}

TEST(TrainStep, NothingWeighsNothing) {
  const Array x = random(1, {2, 4, 3}), y = random(2, {2, 2});
  Training run(lstm, losses::MSE(), {.sample_weights = true}, x.type(), y.type());
  const Tree<Array> before = run.params;
  run.run({.x = x, .y = y, .sample_weights = Array::zeros(DType::F64, {2})});
  EXPECT_EQ(run.loss, 0);
  EXPECT_TRUE(same_bits(run.params, before));
}

TEST(TrainStep, PlainFunctionsTakeNoWeights) {
  const losses::Loss plain([](Value a, Value b) { return sum(square(a - b)); }, "plain");
  const ValueType x{DType::F64, {2, 4, 3}}, y{DType::F64, {2, 2}};
  EXPECT_EQ(message_of([&] {
              Training run(lstm, plain, {.sample_weights = true}, x, y);
              run.step.graph();
            }),
            "[plain] weights and lengths need a loss that is a mean over elements. Received: a plain function. "
            "Try: make it a Loss::Pointwise.");
}

const Layer noisy = Sequential(LSTM(3, 4), Last(), Layer(NoisyModule()), Linear(4, 2));

TEST(TrainStep, TheKeyDecidesWhatIsDrawnAndBuffersCount) {
  const Array x = random(1, {5, 4, 3}), y = random(2, {5, 2});
  for (const Backend& backend : all_backends()) {
    SCOPED_TRACE(backend.name);
    const Training start(noisy, losses::MSE(), {.key = true}, x.type(), y.type());
    Training a = start, b = start, c = start;
    a.run({.x = x, .y = y, .key = train::step_key(7, 0)}, backend);
    b.run({.x = x, .y = y, .key = train::step_key(7, 0)}, backend);
    c.run({.x = x, .y = y, .key = train::step_key(7, 1)}, backend);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_TRUE(same_bits(a.params, b.params));
    EXPECT_NE(a.loss, c.loss);
    EXPECT_EQ(a.buffers["2.calls"].at(0), 1);
    a.run({.x = x, .y = y, .key = train::step_key(7, 1)}, backend);
    EXPECT_EQ(a.buffers["2.calls"].at(0), 2);
  }
}

TEST(TrainStep, InferenceDrawsNothingAndKeepsBuffers) {
  const Tree<Array> params = noisy.init(0, DType::F64), buffers = noisy.init_buffers(DType::F64);
  const Array x = random(1, {5, 4, 3});
  const Step step = train::predict_step(noisy, params, x.type(), {.buffers = buffers});
  const Array y = ir::evaluate(*step.graph(), step.arguments(params, {}, buffers, {.x = x}))[0];
  // The noisy layer has no parameters, so that the rest is a model of its own.
  const Tree<Array> body = {{"0", params.at("0")}};
  const Array hidden = apply_on(Sequential(LSTM(3, 4), Last()), body, x)[0];
  EXPECT_EQ(difference(y, apply_on(Linear(4, 2), params.at("3"), hidden)[0]), 0);
}

TEST(TrainStep, KeysDifferByStepAndSeed) {
  const auto words = [](std::uint64_t seed, std::uint64_t step) {
    const Array key = train::step_key(seed, step);
    return std::pair(key.at(0), key.at(1));
  };
  EXPECT_EQ(words(1, 2), words(1, 2));
  EXPECT_NE(words(1, 2), words(1, 3));
  EXPECT_NE(words(1, 2), words(2, 2));
  EXPECT_NE(words(1, 2), words(1, (std::uint64_t{1} << 32) + 2));
}

TEST(TrainStep, ManyStepsAreThatManyCalls) {
  constexpr std::int64_t count = 4;
  const Array x = random(1, {count, 20, 4, 3}), y = random(2, {count, 20, 2});
  Array keys(DType::U32, {count, 2}), lengths(DType::I32, {count, 20}), weights(DType::F64, {count, 20});
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t k = 0; k < 2; ++k) keys.set(2 * i + k, train::step_key(9, static_cast<std::uint64_t>(i)).at(k));
  for (std::int64_t i = 0; i < lengths.size(); ++i)
    lengths.set(i, 1 + i % 4), weights.set(i, 0.5 + 0.1 * double(i % 7));
  const auto part = [](const Array& all, std::int64_t i) {
    Array out(all.dtype(), all.shape().without(0));
    std::memcpy(out.raw(), static_cast<const std::byte*>(all.raw()) + static_cast<std::size_t>(i) * out.bytes(),
                out.bytes());
    return out;
  };
  const StepOptions options{.key = true, .lengths = true, .sample_weights = true};
  for (const int threads : {1, 2}) {
    Training one(noisy, losses::MSE(), options, {DType::F64, {20, 4, 3}}, {DType::F64, {20, 2}});
    Training all = one;
    all.step = train::many_steps(one.step, count);
    CompileOptions compile_options;
    compile_options.threads = threads;
    const Executable single = compile(one.step.graph(), compile_options);
    const Executable many = compile(all.step.graph(), compile_options);
    const std::vector<Array> out =
        many(all.step.arguments(all.params, all.state, all.buffers,
                                {.x = x, .y = y, .key = keys, .lengths = lengths, .sample_weights = weights}));
    all.take(out);
    const Array losses = out[all.step.num_carried()];
    for (std::int64_t i = 0; i < count; ++i) {
      one.take(single(one.step.arguments(one.params, one.state, one.buffers,
                                         {.x = part(x, i),
                                          .y = part(y, i),
                                          .key = part(keys, i),
                                          .lengths = part(lengths, i),
                                          .sample_weights = part(weights, i)})));
      EXPECT_EQ(losses.at(i), one.loss) << i;
    }
    EXPECT_TRUE(same_bits(all.params, one.params));
    EXPECT_TRUE(same_bits(all.state, one.state));
    EXPECT_EQ(all.buffers["2.calls"].at(0), count);
  }
}

// Nothing of the gradient is left when the learning rate is 0: only the loss reads the batch.
TEST(TrainStep, AStepThatLearnsNothingTakesFewerRows) {
  const optim::SGD optimizer(0.0);
  const Linear model(3, 2);
  const Tree<Array> params = model.init(1, DType::F64);
  const Step step = train::train_step(model, losses::MSE(), optimizer, params, optimizer.init(params),
                                      {DType::F64, {40, 3}}, {DType::F64, {40, 2}});
  const Array x = random(1, {7, 3}), y = random(2, {7, 2});
  const double loss = loss_of(losses::MSE(), apply_on(model, params, x)[0], y);
  for (const char* backend : {"interp", "llvm", "c"}) {
    SCOPED_TRACE(backend);
    CompileOptions options;
    options.backend = backend;
    options.batch_axes = step.batch_axes;
    const std::vector<Array> out = compile(step.graph(), options)(step.arguments(params, {}, {}, {.x = x, .y = y}));
    EXPECT_NEAR(out[step.num_carried()].at(0), loss, 1e-12);
    EXPECT_TRUE(same_bits(params.unflatten(std::span(out).first(step.num_params)), params));
  }
}

TEST(TrainStep, ObservationsReachAPlateauInsideAWrapper) {
  const optim::Optimizer optimizer =
      optim::EMA(optim::SGD({1.0, {optim::Plateau({.factor = 0.5, .patience = 1})}}), 0.9);
  ASSERT_TRUE(optimizer.observes());
  EXPECT_FALSE(optim::Optimizer(optim::Adam()).observes());
  const Tree<Array> params = {{"w", Array::full(DType::F64, {1}, 1)}};
  Tree<Array> state = optimizer.init(params);
  const Step step = train::observe_step(optimizer, state);
  std::vector<double> factors;
  for (const double value : {3.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0}) {
    std::vector<Array> arguments = state.flatten();
    arguments.push_back(Array::scalar(value));
    state = state.unflatten(ir::evaluate(*step.graph(), arguments));
    factors.push_back(state["inner.schedule.0.factor"].at(0));
  }
  EXPECT_EQ(factors, (std::vector<double>{1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25}));
}

TEST(TrainStep, ArgumentsMustBeThoseOfTheStep) {
  const Linear model(2, 1);
  const optim::Adam optimizer;
  const Tree<Array> params = model.init(0), state = optimizer.init(params);
  const StepData data = {.x = Array::zeros(DType::F32, {4, 2}), .y = Array::zeros(DType::F32, {4, 1})};
  const auto step_of = [&](const StepOptions& options) {
    return train::train_step(model, losses::MSE(), optimizer, params, state, data.x.leaf().type(), data.y.type(),
                             options);
  };
  EXPECT_EQ(message_of([&] {
              step_of({}).arguments({{"weight", params["weight"]}}, state, {}, data);
            }),
            "[train_step] params must have the leaves that the step was made for, 2. Received: 1 leaves. Try: a step "
            "made for these.");
  EXPECT_EQ(message_of([&] { step_of({}).arguments(params, {}, {}, data); }),
            "[train_step] state must have the leaves that the step was made for, 5. Received: 0 leaves. Try: a step "
            "made for these.");
  StepData keyed = data;
  keyed.key = train::step_key(0, 0);
  EXPECT_EQ(message_of([&] { step_of({}).arguments(params, state, {}, keyed); }),
            "[train_step] key must not be given: the step does not take it. Received: u32[2]. Try: a step made with "
            "StepOptions{.key = true}.");
  EXPECT_EQ(message_of([&] { step_of({.key = true}).arguments(params, state, {}, data); }),
            "[train_step] key must be given: the step takes it. Received: an undefined array. Try: a step made with "
            "StepOptions{.key = false}.");
  EXPECT_EQ(step_of({.key = true}).arguments(params, state, {}, keyed).size(), 10u);
}

// A bias of one number would be broadcast, and weights of another size give a model of another size.
TEST(TrainStep, ParametersMustBeTheModels) {
  const Linear model(3, 8);
  Tree<Array> params = model.init(0);
  const ValueType x = {DType::F32, {4, 3}}, y = {DType::F32, {4, 8}};
  const optim::SGD optimizer(0.1);
  const auto message = [&] {
    const std::string of_predict = message_of([&] { train::predict_step(model, params, x); });
    const std::string of_step =
        message_of([&] { train::train_step(model, losses::MSE(), optimizer, params, optimizer.init(params), x, y); });
    const std::string rest = of_predict.substr(of_predict.find(']') + 1);
    EXPECT_EQ(of_predict, "[predict]" + rest);
    EXPECT_EQ(of_step, "[train_step]" + rest);
    return rest;
  };
  const std::string remedy = ". Try: those that model.init(seed) gave, or that it was trained with.";
  params["bias"] = Array::zeros(DType::F32, {1});
  EXPECT_EQ(message(), " params must be the model's own, bias = f32[8]. Received: f32[1]" + remedy);
  params = Linear(3, 5).init(0);
  EXPECT_EQ(message(), " params must be the model's own, weight = f32[8,3]. Received: f32[5,3]" + remedy);
  params = {};
  EXPECT_EQ(message(), " params must be the model's own, weight = f32[8,3]. Received: no weight" + remedy);
  params = model.init(0);
  params.set("scale", Array::scalar(2.0f));
  EXPECT_EQ(message(), " params must be the model's own, which has no scale. Received: scale = f32[]" + remedy);
}

}  // namespace
}  // namespace hotloop::testing
