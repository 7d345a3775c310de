// Where the factors of products are when a block multiplies them: in registers, in near memory, in panels on their way; results are the processor's whatever there is
// room for.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "cuda/program_fixture.h"
#include "user_cells.h"

namespace hotloop {
namespace {

class CudaFactors : public CudaPrograms {
 protected:
  static CompileOptions with_source() {
    CompileOptions options = on_cuda();
    options.keep_source = true;
    return options;
  }
  static int count(const std::string& text, const std::string& what) {
    int n = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  }
  // Bytes of near memory of a block, by explain().
  static std::int64_t near_bytes(const Executable& e) {
    std::string text;
    for (const char c : e.explain())
      if ((c != ' ' && c != '\n') || !text.ends_with(' ')) text += c == '\n' ? ' ' : c;
    const std::size_t unit = text.find(" B of shared"), number = text.find_last_not_of("0123456789", unit - 1);
    return std::stoll(text.substr(number + 1, unit - number - 1));
  }
};

struct Forecast {
  Forecast(const nn::Layer& cell, std::int64_t units, std::int64_t rows, std::int64_t steps)
      : model(cell, nn::Last(), nn::Linear(units, 2)) {
    const Tree<Array> params = model.init(3);
    graph = train::predict_step(model, params, {DType::F32, {rows, steps, 5}}).graph();
    inputs = params.flatten();
    inputs.push_back(numbers({DType::F32, {rows, steps, 5}}, 7));
  }
  nn::Sequential model;
  std::shared_ptr<const Graph> graph;
  std::vector<Array> inputs;
};

// 96 units: more weights than registers, more than near memory too where there is as much as every device has.
TEST_F(CudaFactors, WeightsOfALoopStayWhereThereIsRoom) {
  const Forecast lstm(nn::LSTM(5, 96), 96, 9, 6);
  const Array wanted = compile(lstm.graph)(lstm.inputs)[0];
  std::int64_t before = 0;
  for (const std::int64_t near : {40, 64, 100, 227}) {
    for (const ThreadOrder order : {ThreadOrder::Forward, ThreadOrder::Backward, ThreadOrder::Random}) {
      device({.multiprocessors = 3, .near_bytes = near << 10, .order = order});
      const Executable e = compile(lstm.graph, with_source());
      EXPECT_TRUE(same_bits(e(lstm.inputs)[0], wanted)) << near << " KB";
      EXPECT_GT(count(e.source(), "float kept"), 0) << "registers have room on every device";
      EXPECT_LE(near_bytes(e), near << 10);
      if (order != ThreadOrder::Forward) continue;
      EXPECT_GE(near_bytes(e), before);
      before = near_bytes(e);
    }
  }
  EXPECT_GT(before, 64 << 10) << "near memory keeps what registers do not";
}

// Few iterations do not pay for it, and what a loop writes is no constant of it.
TEST_F(CudaFactors, NothingIsKeptForTwoIterations) {
  device();
  const Forecast two(nn::LSTM(5, 24), 24, 4, 2), three(nn::LSTM(5, 24), 24, 4, 3);
  EXPECT_EQ(count(compile(two.graph, with_source()).source(), "float kept"), 0);
  EXPECT_GT(count(compile(three.graph, with_source()).source(), "float kept"), 0);
}

// The four evaluations of a step multiply by the same weights: they are kept once.
TEST_F(CudaFactors, ProductsByTheSameWeightsShareThem) {
  device();
  const ValueType types[] = {{DType::F32, {6, 12}}, {DType::F32, {12, 40}}, {DType::F32, {40, 12}}};
  const auto graph = trace(
      [](Values in) {
        const Value w = in[1], v = in[2], start[] = {in[0]};
        const auto field = [=](Value s) { return matmul(tanh(matmul(s, w)), v); };
        return scan(
                   [=](Values carry, Values) {
                     const Value s = carry[0], k1 = field(s), k2 = field(s + 0.05 * k1), k3 = field(s + 0.05 * k2),
                                 k4 = field(s + 0.1 * k3);
                     return std::pair{std::vector{s + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)}, std::vector<Value>{}};
                   },
                   start, {}, {.length = 12})
            .first;
      },
      types);
  const std::vector<Array> inputs = numbers(*graph, 4);
  const Executable e = compile(graph, with_source());
  EXPECT_TRUE(same_bits(e(inputs)[0], compile(graph)(inputs)[0]));
  EXPECT_EQ(count(e.source(), "float kept"), 2);
}

// What the next product of a step multiplies is written near by what computes it, and inputs in the step before.
TEST_F(CudaFactors, LeftFactorsAreNearBeforeTheyAreMultiplied) {
  for (const ThreadOrder order : {ThreadOrder::Forward, ThreadOrder::Backward, ThreadOrder::Random}) {
    device({.order = order});
    const Training lstm(nn::LSTM(3, 24), 24, 4, 130);
    const auto graph = lstm.step.graph();
    const std::vector<Array> inputs = lstm.inputs(*graph);
    const Executable e = compile(graph, with_source());
    expect_near(e(inputs), compile(graph)(inputs), 1e-5);
    EXPECT_GE(count(e.source(), "))["), 6) << "four gates' gradients, the first input and the next ones";
  }
}

// Gradients of weights are sums over all steps, whose factors come in panels; of sizes that fill no tile as well.
TEST_F(CudaFactors, GradientsOfWeightsComeInPanels) {
  for (const std::int64_t units : {37, 40, 66})
    for (const ThreadOrder order : {ThreadOrder::Forward, ThreadOrder::Random}) {
      device({.near_bytes = 100 << 10, .order = order});
      const Training lstm(nn::LSTM(3, units), units, 2, 330);
      const auto graph = lstm.step.graph();
      const std::vector<Array> inputs = lstm.inputs(*graph);
      const Executable e = compile(graph, with_source());
      expect_near(e(inputs), compile(graph)(inputs), 2e-5);
      EXPECT_GT(count(e.source(), ", by panels"), 0) << units;
    }
  // Where there is no room for them.
  device({.near_bytes = 36 << 10});
  const Training lstm(nn::LSTM(3, 40), 40, 2, 330);
  const auto graph = lstm.step.graph();
  const std::vector<Array> inputs = lstm.inputs(*graph);
  expect_near(compile(graph, on_cuda())(inputs), compile(graph)(inputs), 2e-5);
}

// Loops side by side in a loop: what one keeps for itself alone does not lie where another has what stays from in front of all of them on.
TEST_F(CudaFactors, WhatStaysInAnOuterLoopIsNotOverwrittenByInnerOnes) {
  constexpr std::int64_t rows = 5, units = 130, steps = 4;
  const ValueType types[] = {
      {DType::F32, {rows, units}}, {DType::F32, {steps, units, units}}, {DType::F32, {units, units}}};
  const auto graph = trace(
      [](Values in) {
        const Value fixed = in[2], start[] = {in[0]}, weights[] = {in[1]};
        const auto run = [](const Value& from, const Value& w) {
          const Value carry[] = {from};
          return scan(
                     [=](Values c, Values) {
                       return std::pair{std::vector{tanh(matmul(c[0], w))}, std::vector<Value>{}};
                     },
                     carry, {}, {.length = 3})
              .first[0];
        };
        return scan(
                   [=](Values carry, Values of_step) {
                     return std::pair{std::vector{run(run(carry[0], of_step[0]), fixed)}, std::vector<Value>{}};
                   },
                   start, weights, {.length = steps})
            .first;
      },
      types);
  const std::vector<Array> inputs = numbers(*graph, 4);
  const Array wanted = compile(graph)(inputs)[0];
  for (const std::int64_t near : {64, 100, 227}) {
    device({.near_bytes = near << 10});
    EXPECT_TRUE(same_bits(compile(graph, on_cuda())(inputs)[0], wanted)) << near << " KB";
  }
}

// What is added to a product, the same in all iterations: a row for all, or one for each of fewer rows than a tile has.
TEST_F(CudaFactors, WhatSumsStartFromIsReadOnce) {
  for (const Shape& shape : {Shape{24}, Shape{517, 24}})
    for (const std::int64_t rows : {517, 516, 3}) {
      device();
      const ValueType types[] = {
          {DType::F32, {517, 24}}, {DType::F32, {24, 24}}, {DType::F32, shape}, {DType::F32, {517, 9, 24}}};
      const auto graph = trace(
          [](Values in) {
            const Value xs[] = {transpose(in[3], {1, 0, 2})}, w = in[1], b = in[2];
            return scan(
                       [=](Values carry, Values x) {
                         return std::pair{std::vector{tanh(matmul(carry[0], w) + b) + x[0]}, std::vector<Value>{}};
                       },
                       in.first(1), xs)
                .first;
          },
          types);
      CompileOptions options = with_source(), processor;
      options.batch_axes = processor.batch_axes = {0, -1, shape.rank() == 2 ? 0 : -1, 0};
      std::vector<Array> inputs;
      for (std::size_t i = 0; i < std::size(types); ++i) {
        Shape of_rows = types[i].shape;
        if (const int axis = options.batch_axes[i]; axis >= 0) of_rows[axis] = rows;
        inputs.push_back(numbers({DType::F32, of_rows}, static_cast<std::uint32_t>(i + 3)));
      }
      const Executable e = compile(graph, options);
      EXPECT_TRUE(same_bits(e(inputs)[0], compile(graph, processor)(inputs)[0])) << shape.str() << ", " << rows;
      const std::string source = e.source();
      EXPECT_LT(source.find("start0["), source.find("// dot ")) << source;
    }
}

// Several quotients of a point run side by side, unless a number is too large, too small or none; where denormals count as 0 too.
TEST_F(CudaFactors, QuotientsAreTheProcessorsForEveryNumber) {
  device();
  constexpr std::int64_t n = 4096;
  Array a(DType::F32, {n}), b(DType::F32, {n});
  const float special[] = {0.0f,     -0.0f,   1.0f,          INFINITY,      -INFINITY,       NAN,       1e-45f,
                           1.2e-38f, 3.4e38f, 0x1.fffffep0f, 0x1.fffffap0f, 0x1.fffffep-30f, 0x1p-100f, 0x1p100f};
  std::uint32_t state = 9;
  for (std::int64_t i = 0; i < n; ++i)
    for (Array* x : {&a, &b}) {
      state = state * 1664525u + 1013904223u;
      const double mantissa = 1 + static_cast<double>(state >> 9 & 0x7fffff) * 0x1p-23;
      state = state * 1664525u + 1013904223u;
      const bool is_special = state >> 29 == 0;
      x->set(i, is_special
                    ? static_cast<double>(special[(state >> 8) % std::size(special)])
                    : std::ldexp(state >> 28 & 1 ? mantissa : -mantissa, static_cast<int>(state >> 8 & 0xff) - 127));
    }
  const ValueType types[] = {a.type(), b.type()};
  const auto graph = trace(
      [](Values in) {
        return std::vector{in[0] / in[1], in[1] / in[0], in[0] / in[1] / in[1]};
      },
      types);
  for (const bool flush : {false, true}) {
    CompileOptions options = with_source(), processor;
    options.flush_denormals = processor.flush_denormals = flush;
    const Executable e = compile(graph, options);
    EXPECT_GT(count(e.source(), "= hl_quotient("), 2);
    const Array inputs[] = {a, b};
    const std::vector<Array> got = e(inputs), wanted = compile(graph, processor)(inputs);
    for (std::size_t k = 0; k < got.size(); ++k)
      for (std::int64_t i = 0; i < n; ++i) {
        const double x = got[k].at(i), y = wanted[k].at(i);
        EXPECT_TRUE((std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y)))
            << k << ": " << a.at(i) << " and " << b.at(i) << " give " << x << ", not " << y
            << (flush ? ", without denormals" : "");
      }
  }
}

}  // namespace
}  // namespace hotloop
