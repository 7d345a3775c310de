// Outputs computed into the memory of donated inputs: where, with how much memory, and who may donate.
#include <gtest/gtest.h>

#include "arrays.h"
#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "runtime/pool.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

constexpr std::int64_t rows = 70, width = 40;

CompileOptions donating(std::vector<int> inputs) {
  CompileOptions options;
  options.donated = std::move(inputs);
  return options;
}

Array ramp(const Shape& shape, double scale) {
  Array a(DType::F32, shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, scale * static_cast<double>(i % 17 - 8));
  return a;
}

// A step of momentum on a layer's squared error: weights, momentum, x.
std::vector<Value> step(Values v) {
  const Value gradient = grad([&](Values w) { return std::vector<Value>{mean(square(tanh(matmul(v[2], w[0]))))}; },
                              {0})(std::vector<Value>{v[0]})[0];
  const Value momentum = v[1] * 0.9 + gradient;
  return {v[0] - momentum * 0.1, momentum};
}

std::vector<Value> many_steps(Values v) {
  const Value init[] = {v[0], v[1]};
  return scan(
             [&](Values c, Values) {
               return std::pair{step(std::vector<Value>{c[0], c[1], v[2]}), std::vector<Value>{}};
             },
             init, {}, {.length = 20})
      .first;
}

const std::vector<ValueType> step_types = {
    {DType::F32, {width, width}}, {DType::F32, {width, width}}, {DType::F32, {rows, width}}};
std::vector<Array> step_inputs() {
  return {ramp({width, width}, 0.01), Array::zeros(DType::F32, {width, width}), ramp({rows, width}, 0.1)};
}

// Which of a program's outputs are computed in place of its one donated input.
bool is_in_place(const TracedFunction& fn, const std::vector<ValueType>& types,
                 CompileOptions options = donating({0})) {
  return compile(trace(fn, types), options).explain().find("in place of input 0") != std::string::npos;
}

TEST(Donate, UpdatesAndCarriesTakeNoMemory) {
  for (const TracedFunction& fn : {TracedFunction(step), TracedFunction(many_steps)}) {
    for (const int threads : {1, 2}) {
      CompileOptions options = donating({0, 1});
      options.threads = threads;
      const auto graph = trace(fn, step_types);
      const Executable run = compile(graph, options);
      const std::vector<Array> expected = compile(graph)(step_inputs());
      std::vector<Array> in = step_inputs(), out(2);
      const void* memory[] = {in[0].raw(), in[1].raw()};
      runtime::array_pool().release_kept();
      const std::uint64_t fresh = runtime::array_pool().num_fresh();
      run.run_donating(in, out);
      EXPECT_EQ(runtime::array_pool().num_fresh(), fresh);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(out[i].raw(), memory[i]);
        EXPECT_FALSE(in[i].defined());
        EXPECT_TRUE(testing::same_bits(out[i], expected[i]));
      }
      EXPECT_TRUE(in[2].defined());
      // Without donation each output is a block of its own.
      in = step_inputs();
      run.run(in, out);
      EXPECT_GE(runtime::array_pool().num_fresh(), fresh + 2);
      EXPECT_TRUE(testing::same_bits(in[0], step_inputs()[0]));
      EXPECT_TRUE(testing::same_bits(out[0], expected[0]));
    }
  }
}

TEST(Donate, ACarryThatBeginsAsTheInputIsNotCopiedIntoIt) {
  const auto graph = trace(many_steps, step_types);
  CompileOptions options = donating({0, 1});
  EXPECT_NE(compile(graph).kernel_text().find("map copy"), std::string::npos);
  EXPECT_EQ(compile(graph, options).kernel_text().find("map copy"), std::string::npos);
}

// All rows are one tile, whose statements may run through them as one line.
TEST(Donate, ACarryOfOneTileIsNotCopied) {
  const std::vector<ValueType> types = {{DType::F32, {16, 16}}, {DType::F32, {16, 16}}, {DType::F32, {rows, 16}}};
  const auto graph = trace(many_steps, types);
  EXPECT_NE(compile(graph).kernel_text().find("map copy"), std::string::npos);
  EXPECT_EQ(compile(graph, donating({0, 1})).kernel_text().find("map copy"), std::string::npos);
}

TEST(Donate, WhatIsReadLaterOrElsewhereIsNotOverwritten) {
  const std::vector<ValueType> square_type = {{DType::F32, {width, width}}};
  EXPECT_TRUE(is_in_place([](Values v) { return std::vector<Value>{tanh(v[0])}; }, square_type));
  EXPECT_TRUE(is_in_place([](Values v) { return std::vector<Value>{v[0]}; }, square_type));
  EXPECT_FALSE(is_in_place([](Values v) { return std::vector<Value>{transpose(v[0], {1, 0})}; }, square_type));
  EXPECT_FALSE(is_in_place([](Values v) { return std::vector<Value>{reverse(v[0], {0})}; }, square_type));
  EXPECT_FALSE(is_in_place([](Values v) { return std::vector<Value>{matmul(v[0], v[0])}; }, square_type));
  EXPECT_FALSE(
      is_in_place([](Values v) { return std::vector<Value>{reduce_sum(v[0], {0})}; }, square_type));  // no such output
}

TEST(Donate, RowsOfABatchKeepToThemselves) {
  // A state of many rows, carried through a loop inside each tile.
  const TracedFunction steps = [](Values v) {
    const Value init[] = {v[0]};
    return scan(
               [&](Values c, Values) {
                 return std::pair{std::vector<Value>{tanh(matmul(c[0], v[1]))}, std::vector<Value>{}};
               },
               init, {}, {.length = 9})
        .first;
  };
  const std::vector<ValueType> types = {{DType::F32, {500, width}}, {DType::F32, {width, width}}};
  EXPECT_TRUE(is_in_place(steps, types));
  CompileOptions options = donating({0});
  options.batch_axes = {0, -1};
  EXPECT_TRUE(is_in_place(steps, types, options));
  const Executable run = compile(trace(steps, types), options);
  for (const std::int64_t given : {500, 301, 1}) {
    std::vector<Array> in = {ramp({given, width}, 0.1), ramp({width, width}, 0.01)}, out(1);
    const std::vector<Array> expected = run(in);
    const void* memory = in[0].raw();
    run.run_donating(in, out);
    EXPECT_EQ(out[0].raw(), memory);
    EXPECT_TRUE(testing::same_bits(out[0], expected[0])) << given << " rows";
  }
}

TEST(Donate, BesideBoundInputs) {
  const std::vector<ValueType> types = {{DType::F32, {width, width}}, {DType::F32, {3, width}}};
  const auto graph = trace([](Values v) { return std::vector<Value>{v[1] * 0.5 + tanh(sum(v[0]))}; }, types);
  const std::vector<Array> bound = {ramp({width, width}, 0.1), Array()};
  const Executable run = compile_bound(graph, bound, donating({1}));
  std::vector<Array> in = {ramp({3, width}, 0.1)}, out(1);
  const std::vector<Array> expected = run(in);
  const void* memory = in[0].raw();
  run.run_donating(in, out);
  EXPECT_EQ(out[0].raw(), memory);
  EXPECT_TRUE(testing::same_bits(out[0], expected[0]));
  EXPECT_THROW(compile_bound(graph, bound, donating({0})), UserError);
}

TEST(Donate, OnlyWhatNobodyElseHolds) {
  const auto graph =
      trace([](Values v) { return std::vector<Value>{v[0] + v[1]}; }, std::vector<ValueType>(2, {DType::F32, {width}}));
  const Executable run = compile(graph, donating({0}));
  std::vector<Array> in = {ramp({width}, 1), ramp({width}, 2)}, out(1);
  const auto refuses = [&] {
    try {
      run.run_donating(in, out);
      ADD_FAILURE() << "no error";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("donated argument 0"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(in[0].defined());
  };
  const Array second = in[0];
  refuses();
  std::vector<float> foreign(width, 1.0f);
  in[0] = Array::wrap(DType::F32, {width}, std::shared_ptr<void>(foreign.data(), [](void*) {}));
  refuses();
  in[0] = in[1];  // one array as two inputs
  refuses();
  EXPECT_THROW(compile(graph, donating({2})), UserError);
}

}  // namespace
}  // namespace hotloop
