// dispatch "per_op": the same results, one launch an op.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "hotloop/hotloop.h"
#include "user_cells.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

CompileOptions per_op() {
  CompileOptions options;
  options.dispatch = "per_op";
  return options;
}

Array numbers(const Shape& shape, double phase, double scale = 0.5) {
  Array a(DType::F32, shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, scale * std::sin(0.7 * static_cast<double>(i) + phase));
  return a;
}

std::vector<ValueType> types_of(const std::vector<Array>& arrays) {
  std::vector<ValueType> types;
  for (const Array& a : arrays) types.push_back(a.type());
  return types;
}

void expect_close(const std::vector<Array>& a, const std::vector<Array>& b, double relative) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t k = 0; k < a.size(); ++k) {
    ASSERT_EQ(a[k].type(), b[k].type());
    double size = 1e-30, error = 0;
    for (std::int64_t i = 0; i < a[k].size(); ++i) {
      size = std::max(size, std::abs(b[k].at(i)));
      error = std::max(error, std::abs(a[k].at(i) - b[k].at(i)));
    }
    EXPECT_LE(error, relative * size) << "result " << k;
  }
}

// Compiles both ways and runs both: the results may differ by `relative` of the largest number. Gives the launches.
std::vector<KernelRecord> expect_same(const TracedFunction& fn, const std::vector<Array>& inputs, double relative) {
  const std::shared_ptr<Graph> graph = trace(fn, types_of(inputs));
  const std::vector<Array> fused = compile(graph)(inputs);
  const Executable run = compile(graph, per_op());
  KernelHistory::start();
  const std::vector<Array> results = run(inputs);
  const std::vector<KernelRecord> records = KernelHistory::stop();
  expect_close(results, fused, relative);
  return records;
}

TEST(PerOp, LaunchesOneKernelAnOp) {
  const auto records = expect_same(
      [](Values v) {
        return std::vector<Value>{transpose(tanh(matmul(v[0], v[1]) + v[2]), {1, 0})};
      },
      {numbers({4, 3}, 0), numbers({3, 5}, 1), numbers({5}, 2)}, 1e-6);
  // The bias is broadcast by the addition's kernel; the transposed result is a copy.
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].num_dots, 1);
  for (std::size_t k : {1u, 2u, 3u}) EXPECT_EQ(records[k].num_maps + records[k].num_dots, 1) << k;
}

TEST(PerOp, ExplainCountsKernelsAndLaunches) {
  const auto body = [](Values carry, Values xs) {
    const Value h = tanh(carry[0] * 0.5 + xs[0]);
    return std::pair{std::vector<Value>{h}, std::vector<Value>{h}};
  };
  const auto fn = [&](Values v) { return scan(body, v.first(1), v.subspan(1, 1)).second; };
  const std::vector<Array> inputs = {numbers({3}, 0), numbers({7, 3}, 1)};
  const auto records = expect_same(fn, inputs, 0);
  EXPECT_EQ(records.size(), 3u * 7u);  // mul, add, tanh
  const Executable run = compile(trace(fn, types_of(inputs)), per_op());
  std::string text = run.explain();  // in lines of 80 columns
  for (std::size_t at = 0; (at = text.find("\n            ", at)) != std::string::npos;) text.replace(at, 13, " ");
  EXPECT_NE(text.find("3 kernels, one an op"), std::string::npos) << text;
  EXPECT_NE(text.find("21 launches a call"), std::string::npos) << text;
}

TEST(PerOp, ElementwiseProgramsAreTheSameBits) {
  expect_same(
      [](Values v) {
        const Value a = exp(v[0]) * sigmoid(v[1]) - sqrt(square(v[0]) + 1.0);
        return std::vector<Value>{a, select(greater(a, v[1]), log1p(square(v[1])), a / (square(v[0]) + 2.0)), v[0]};
      },
      {numbers({6, 17}, 0), numbers({6, 17}, 1)}, 0);
}

TEST(PerOp, LoopsRunBackwards) {
  const auto body = [](Values carry, Values xs) {
    const Value next = carry[0] * 0.9 + xs[0];
    return std::pair{std::vector<Value>{next, carry[0]}, std::vector<Value>{next * 2.0, xs[0]}};
  };
  const auto fn = [&](Values v) {
    const auto [carry, ys] = scan(body, v.first(2), v.subspan(2, 1), {.reverse = true});
    return std::vector<Value>{carry[0], carry[1], ys[0], ys[1]};
  };
  expect_same(fn, {numbers({4}, 0), numbers({4}, 1), numbers({5, 4}, 2)}, 0);
}

// The backward loop of a bounded loop runs as often as that did.
TEST(PerOp, LoopsStopAtARunTimeCount) {
  const auto fn = [](Values v) {
    const std::vector<Value> end = while_loop([](Values c) { return less(sum(c[0]), like(sum(c[0]), 3)); },
                                              [](Values c) {
                                                return std::vector<Value>{c[0] * 1.5 + square(c[1]), c[1] * 0.9};
                                              },
                                              v, 40);
    return std::vector<Value>{sum(end[0] * end[1])};
  };
  for (const double start : {0.3, 0.01, 5.0})
    expect_same(value_and_grad(fn, {0, 1}), {Array::full(DType::F32, {4}, start), numbers({4}, 1)}, 1e-6);
}

TEST(PerOp, LanesFinishEachAtItsOwnTime) {
  const auto one = [](Values v) {
    return while_loop([](Values c) { return less(c[0], like(c[0], 3)); },
                      [](Values c) {
                        return std::vector<Value>{c[0] * 1.5 + square(c[1]), c[1] * 0.9};
                      },
                      v, 40);
  };
  Array start = numbers({9}, 0);
  for (std::int64_t i = 0; i < start.size(); ++i) start.set(i, 0.3 + 0.5 * static_cast<double>(i));
  expect_same(vmap(one, {0, 0}), {start, numbers({9}, 1)}, 0);
}

train::Step step_of(const nn::Sequential& model, const Tree<Array>& params, const Tree<Array>& state, const Array& x,
                    const Array& y) {
  return train::train_step(model, losses::MSE(), optim::Adam(1e-2), params, state, x.type(), y.type());
}

TEST(PerOp, TrainingStepsOfLibraryAndUserCells) {
  const Array x = numbers({5, 6, 3}, 0), y = numbers({5, 1}, 1);
  const std::vector<nn::Layer> cells = {nn::LSTM(3, 8), nn::GRU(3, 8), nn::Recurrent(testing::LayerNormLstmCell(3, 8))};
  for (const nn::Layer& cell : cells) {
    const nn::Sequential model(cell, nn::Last(), nn::Linear(8, 1));
    const Tree<Array> params = model.init(0), state = optim::Adam(1e-2).init(params);
    const train::Step step = step_of(model, params, state, x, y);
    // Adam divides by the root of the gradient's square, which magnifies rounding where gradients are small.
    const auto records = expect_same(step.function, step.arguments(params, state, x, y), 1e-4);
    EXPECT_GT(records.size(), 6u * 20u);
    for (const KernelRecord& r : records) {
      EXPECT_EQ(r.num_loops, 0) << r.name;
      EXPECT_LE(r.num_dots, 1) << r.name;
    }
  }
}

TEST(PerOp, FewerRowsThanTracedFor) {
  const nn::Sequential model(nn::LSTM(3, 8), nn::Last(), nn::Linear(8, 1));
  const Tree<Array> params = model.init(0), state = optim::Adam(1e-2).init(params);
  const Array x = numbers({5, 6, 3}, 0), y = numbers({5, 1}, 1);
  const train::Step step = step_of(model, params, state, x, y);
  CompileOptions options;
  options.batch_axes = step.batch_axes;
  const Executable fused = compile(step.graph(), options);
  options.dispatch = "per_op";
  const Executable run = compile(step.graph(), options);
  for (const std::int64_t rows : {5, 2}) {
    const auto arguments = step.arguments(params, state, numbers({rows, 6, 3}, 0), numbers({rows, 1}, 1));
    expect_close(run(arguments), fused(arguments), 1e-4);
  }
}

TEST(PerOp, BoundWeights) {
  const nn::Sequential model(nn::LSTM(3, 8), nn::Linear(8, 2));
  const Tree<Array> params = model.init(0);
  StreamOptions options;
  const Stream fused(model, params, 3, options);
  options.compile.dispatch = "per_op";
  const Stream stream(model, params, 3, options);
  const auto [y, state] = stream.step(stream.initial_state(), numbers({1, 3}, 0));
  const auto [wanted, after] = fused.step(fused.initial_state(), numbers({1, 3}, 0));
  expect_close({y}, {wanted}, 1e-6);
  expect_close(state.flatten(), after.flatten(), 1e-6);
}

TEST(PerOp, RefusesWhatItIsNot) {
  const auto message = [](const CompileOptions& options) -> std::string {
    try {
      compile(trace([](Values v) { return std::vector<Value>{v[0] + 1.0}; }, std::vector<ValueType>{{DType::F32, {3}}}),
              options);
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  };
  CompileOptions options = per_op();
  options.backend = "interp";
  EXPECT_NE(message(options).find("dispatch per_op compiles its ops"), std::string::npos) << message(options);
  options = {};
  options.dispatch = "per-op";
  EXPECT_NE(message(options).find("Try: did you mean 'per_op'?"), std::string::npos) << message(options);
}

}  // namespace
}  // namespace hotloop
