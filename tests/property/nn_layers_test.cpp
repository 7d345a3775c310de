// Layers in training and inference, compiled: every layer of the registry in a training step against the oracle, batches with fewer
// rows, any number of threads, and a sample alone and in any batch.
#include <cstring>

#include "arrays.h"
#include "hotloop/train.h"
#include "nn_testing.h"
#include "registry_samples.h"
#include "user_cells.h"

namespace hotloop::testing {
namespace {

using namespace nn;
using train::Step;
using train::StepData;

constexpr std::int64_t time_steps = 5, features = 4;

// A training step of a layer with a linear one behind it, on sequences of unequal lengths with weights and a key.
struct Problem {
  Problem(const Layer& layer, DType dtype, std::int64_t rows, std::int64_t traced_rows)
      : model(Sequential(layer, Flatten(), Linear(flat_size(layer, dtype), 2))),
        params(model.init(4, dtype)),
        state(optimizer.init(params)),
        buffers(model.init_buffers(dtype)) {
    step = train::train_step(model, losses::Huber(), optimizer, params, state,
                             {dtype, {traced_rows, time_steps, features}}, {dtype, {traced_rows, 2}},
                             {.key = true, .lengths = true, .sample_weights = true, .buffers = buffers});
    data = {.x = uniform(5, {rows, time_steps, features}, dtype, -2, 2),
            .y = uniform(6, {rows, 2}, dtype, -1, 1),
            .key = train::step_key(1, 2),
            .lengths = Array(DType::I32, {rows}),
            .sample_weights = uniform(7, {rows}, dtype, 0.1, 2)};
    for (std::int64_t b = 0; b < rows; ++b) data.lengths.set(b, 1 + static_cast<double>(3 * b % time_steps));
  }
  std::vector<Array> arguments() const { return step.arguments(params, state, buffers, data); }

  static std::int64_t flat_size(const Layer& layer, DType dtype) {
    return layer.output_type({dtype, {1, time_steps, features}}).shape.size();
  }

  // Its state is the gradient itself: Adam would make steps of one size even of a gradient that is zero but for rounding.
  optim::SGD optimizer{0.1, 0.5};
  Layer model;
  Tree<Array> params, state, buffers;
  Step step;
  StepData data;
};

void expect_close(const std::vector<Array>& ours, const std::vector<Array>& oracle, DType dtype) {
  ASSERT_EQ(ours.size(), oracle.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_LE(difference(ours[i], oracle[i]), dtype == DType::F32 ? 3e-6 : 1e-12) << "output " << i;
}

struct Case {
  std::string name;
  Layer layer;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const LayerDef& def : all_layers())
    all.push_back({def.name, make_layer(sample_of(def), {DType::F32, {2, time_steps, features}})});
  all.push_back({"bidirectional stack", LSTM(4, 3, {.num_layers = 2, .bidirectional = true, .dropout = 0.3})});
  all.push_back({"recurrent dropout", GRU(4, 3, {.recurrent_dropout = 0.4})});
  all.push_back({"bidirectional ends", Bidirectional(Recurrent(LayerNormLstmCell(4, 3)), Merge::Sum, false)});
  all.push_back({"dropout for all steps", Dropout(0.3, true)});
  all.push_back({"embedding of a feature", Embedding::of_feature(1, 6, 3, 0)});
  // Its gradient is summed in a table for each block of rows, or by one worker; in vectors, or number by number.
  all.push_back({"embedding of few ids in vectors", Embedding::of_feature(1, 3, 16)});
  all.push_back({"embedding of many ids in vectors", Embedding::of_feature(1, 400, 16)});
  // As wide as the batch of FewerRowsAreASmallerBatch: the width is no number of rows.
  all.push_back({"embedding as wide as the batch", Sequential(Embedding::of_feature(1, 5, 29), LayerNorm(32))});
  all.push_back({"batch norm in a stack", Sequential(GRU(4, 3), BatchNorm(3), MeanPool(), BatchNorm(3))});
  return all;
}

class NnLayers : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Case c = cases()[GetParam()];
};

TEST_P(NnLayers, TrainingStepsAgreeWithTheOracle) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    const Problem p(c.layer, dtype, 7, 7);
    const auto graph = p.step.graph();
    const std::vector<Array> oracle = ir::evaluate(*graph, p.arguments());
    SCOPED_TRACE(name_of(dtype));
    expect_close(compile(graph)(p.arguments()), oracle, dtype);
  }
}

TEST_P(NnLayers, FewerRowsAreASmallerBatch) {
  const Problem small(c.layer, DType::F64, 5, 5), padded(c.layer, DType::F64, 5, 32);
  CompileOptions options;
  options.batch_axes = padded.step.batch_axes;
  expect_close(compile(padded.step.graph(), options)(padded.arguments()),
               ir::evaluate(*small.step.graph(), small.arguments()), DType::F64);
}

TEST_P(NnLayers, StepsAreTheSameForAnyThreadCount) {
  const Problem p(c.layer, DType::F32, 50, 50);
  std::vector<Array> first;
  for (const int threads : {1, 3}) {
    CompileOptions options;
    options.threads = threads;
    options.batch_axes = p.step.batch_axes;
    const std::vector<Array> got = compile(p.step.graph(), options)(p.arguments());
    if (first.empty()) first = got;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], first[i])) << "output " << i;
  }
}

TEST_P(NnLayers, ASampleAloneAndInAnyBatch) {
  const Problem p(c.layer, DType::F32, 33, 33);
  const auto predict = [&](std::int64_t rows) {
    const auto first_rows = [&](const Array& a) {
      Array out(a.dtype(), a.shape().without(0).with_inserted(0, rows));
      std::memcpy(out.raw(), a.raw(), out.bytes());
      return out;
    };
    const StepData data{.x = first_rows(p.data.x.leaf()), .lengths = first_rows(p.data.lengths)};
    const Step step =
        train::predict_step(p.model, p.params, data.x.leaf().type(), {.lengths = true, .buffers = p.buffers});
    return compile(step.graph())(step.arguments(p.params, {}, p.buffers, data))[0];
  };
  const Array all = predict(33);
  for (const std::int64_t rows : {1, 7})
    EXPECT_EQ(std::memcmp(predict(rows).raw(), all.raw(), static_cast<std::size_t>(rows) * 2 * sizeof(float)), 0)
        << rows;
}

INSTANTIATE_TEST_SUITE_P(Registry, NnLayers, ::testing::Range(std::size_t{0}, cases().size()), [](const auto& info) {
  std::string name = cases()[info.param].name;
  for (char& letter : name) letter = letter == ' ' ? '_' : letter;
  return name;
});

// Every loss with weights, and every optimiser, schedule and wrapper, compiled.
TEST(NnComponents, LossesAgreeWithTheOracle) {
  for (const losses::LossDef& def : losses::all_losses())
    for (const DType dtype : {DType::F32, DType::F64}) {
      SCOPED_TRACE(def.name + " " + std::string(name_of(dtype)));
      const losses::Loss loss = losses::make_loss(def.name);
      const Array prediction = uniform(1, prediction_shape(loss, 9), dtype, 0.05, 0.95);
      const std::vector<Array> arrays = {prediction, uniform(2, target_shape(loss, prediction.type()), dtype, 0, 1),
                                         uniform(3, {9}, dtype, 0, 2)};
      const auto fn = [&](std::span<const Value> in) {
        const auto result = loss(in[0], in[1], losses::Weights{.samples = in[2]});
        return std::vector<Value>{result.loss, result.total};
      };
      const std::vector<Array> oracle = run_traced(fn, arrays);
      for (const Backend& backend : all_backends()) expect_close(run_traced(fn, arrays, backend), oracle, dtype);
    }
}

TEST(NnComponents, OptimizersAgreeWithTheOracle) {
  for (const auto& [name, optimizer] : sample_optimizers()) {
    SCOPED_TRACE(name);
    const Layer model = Sequential(Linear(3, 4), Activation("tanh"), Linear(4, 2));
    const Tree<Array> params = model.init(1, DType::F64), state = optimizer.init(params);
    const Array x = uniform(2, {6, 3}, DType::F64, -1, 1), y = uniform(3, {6, 2}, DType::F64, -1, 1);
    const Step step = train::train_step(model, losses::MSE(), optimizer, params, state, x.type(), y.type());
    const auto graph = step.graph();
    const std::vector<Array> arguments = step.arguments(params, state, x, y);
    const std::vector<Array> oracle = ir::evaluate(*graph, arguments);
    expect_close(compile(graph)(arguments), oracle, DType::F64);
  }
}

}  // namespace
}  // namespace hotloop::testing
