// Whole programs on an emulated CUDA device: one launch a call, the processor's results, in whatever order threads run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cache_folder.h"
#include "core/cancel.h"
#include "cuda/program_fixture.h"
#include "user_cells.h"

namespace hotloop {
namespace {

TEST_F(CudaPrograms, ATrainingStepIsOneLaunch) {
  EmulatedDevice& gpu = device();
  const Training lstm(nn::LSTM(3, 20), 20);
  const auto graph = lstm.step.graph();
  const std::vector<Array> inputs = lstm.inputs(*graph);
  CompileOptions options = on_cuda();
  const Executable step = compile(graph, options);
  const std::vector<Array> got = step(inputs);
  EXPECT_EQ(gpu.counters.launches, 1);
  expect_near(got, compile(graph)(inputs), 1e-5);
  const auto before = gpu.counters.allocations.load();
  step(inputs);
  EXPECT_EQ(gpu.counters.launches, 2);
  EXPECT_EQ(gpu.counters.allocations, before) << "a call in the steady state allocates nothing";
  EXPECT_NE(step.explain().find("emulated"), std::string::npos) << step.explain();
}

TEST_F(CudaPrograms, OutputsOfRowsHaveTheProcessorsBits) {
  device();
  for (const nn::Layer& cell : {nn::Layer(nn::LSTM(3, 17)), nn::Layer(nn::GRU(3, 17)),
                                nn::Layer(nn::Recurrent(testing::LayerNormLstmCell(3, 17)))}) {
    const nn::Sequential model(cell, nn::Last(), nn::Linear(17, 5));
    const Tree<Array> params = model.init(2);
    const auto graph = train::predict_step(model, params, {DType::F32, {9, 6, 3}}).graph();
    std::vector<Array> inputs = params.flatten();
    inputs.push_back(numbers({DType::F32, {9, 6, 3}}, 5));
    EXPECT_TRUE(same_bits(compile(graph, on_cuda())(inputs)[0], compile(graph)(inputs)[0]));
  }
}

TEST_F(CudaPrograms, NoOrderOfThreadsChangesABit) {
  std::vector<Array> first;
  for (const ThreadOrder order : {ThreadOrder::Forward, ThreadOrder::Backward, ThreadOrder::Random})
    for (const bool deferred : {false, true}) {
      device({.multiprocessors = order == ThreadOrder::Random ? 5 : 2, .order = order, .deferred = deferred});
      const Training ln(nn::Recurrent(testing::LayerNormLstmCell(3, 12)), 12, 7, 4);
      const auto graph = ln.step.graph();
      const std::vector<Array> got = compile(graph, on_cuda())(ln.inputs(*graph));
      if (first.empty()) first = got;
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], first[i])) << "output " << i;
    }
}

TEST_F(CudaPrograms, FewerRowsAreTheFirstOfMany) {
  device();
  const nn::Sequential model(nn::LSTM(3, 8), nn::Last(), nn::Linear(8, 2));
  const Tree<Array> params = model.init(3);
  const train::Step step = train::predict_step(model, params, {DType::F32, {12, 4, 3}});
  CompileOptions options = on_cuda();
  options.batch_axes = step.batch_axes;
  const Executable predict = compile(step.graph(), options);
  std::vector<Array> inputs = params.flatten();
  inputs.push_back(numbers({DType::F32, {12, 4, 3}}, 5));
  const Array all = predict(inputs)[0];
  for (const std::int64_t rows : {1, 5, 11}) {
    Array x(DType::F32, {rows, 4, 3});
    std::memcpy(x.raw(), inputs.back().raw(), x.bytes());
    std::vector<Array> some = inputs;
    some.back() = x;
    const Array part = predict(some)[0];
    ASSERT_EQ(part.type().shape, (Shape{rows, 2}));
    EXPECT_EQ(std::memcmp(part.raw(), all.raw(), part.bytes()), 0) << rows << " rows";
  }
}

// Tiles of eight rows, whose number is known when they are full: each product writes factors near, over those of the one before.
TEST_F(CudaPrograms, ProductsOneAfterTheOtherWaitForEachOther) {
  const std::int64_t rows = 1024;
  const ValueType type{DType::F32, {rows, 16}};
  const ValueType types[] = {type, type, type, type};
  const auto graph = trace(
      [](Values in) {
        return std::vector{matmul(transpose(in[0], {1, 0}), in[1]), matmul(transpose(in[2], {1, 0}), in[3])};
      },
      types);
  CompileOptions options = on_cuda(), processor;
  options.batch_axes = processor.batch_axes = {0, 0, 0, 0};
  const std::vector<Array> inputs = numbers(*graph, 5);
  for (const ThreadOrder order : {ThreadOrder::Forward, ThreadOrder::Backward, ThreadOrder::Random}) {
    device({.order = order});
    expect_near(compile(graph, options)(inputs), compile(graph, processor)(inputs), 1e-5);
  }
}

// What the next iteration reads is read in this one, and before the loop for the first: of the rows that there are.
TEST_F(CudaPrograms, NumbersReadAheadAreThoseOfTheTile) {
  device();
  for (const bool reverse : {false, true}) {
    const ValueType types[] = {{DType::F32, {1017, 20, 16}}, {DType::F32, {16, 16}}, {DType::F32, {1017, 16}}};
    const auto graph = trace(
        [=](Values in) {
          const Value xs[] = {transpose(in[0], {1, 0, 2})}, w = in[1];
          return scan(
                     [=](Values carry, Values x) {
                       return std::pair{std::vector{tanh(matmul(x[0], w) + carry[0])}, std::vector<Value>{}};
                     },
                     in.subspan(2), xs, {.reverse = reverse})
              .first;
        },
        types);
    CompileOptions options = on_cuda(), processor;
    options.batch_axes = processor.batch_axes = {0, -1, 0};
    options.keep_source = true;
    const std::vector<Array> inputs = numbers(*graph, 6);
    const Executable e = compile(graph, options);
    EXPECT_TRUE(same_bits(e(inputs)[0], compile(graph, processor)(inputs)[0]));
    // As many rows are read as there are.
    const std::size_t first = e.source().find("float next0 = 0;");
    ASSERT_NE(first, std::string::npos) << e.source();
    EXPECT_LT(e.source().find(" && p < (v", first), e.source().find("next0 = (", first));
  }
}

// Words of four numbers are read of constants too, whatever lies before these.
TEST_F(CudaPrograms, ConstantsAreAligned) {
  device();
  const ValueType types[] = {{DType::F32, {16, 4}}, {DType::F32, {3}}};
  const Array three = numbers({DType::F32, {3}}, 7), square = numbers({DType::F32, {16, 16}}, 8);
  const auto graph = trace(
      [&](Values in) {
        return std::vector{in[1] * constant(three), tanh(matmul(constant(square), in[0])),
                           tanh(matmul(transpose(in[0], {1, 0}), constant(square)))};
      },
      types);
  const std::vector<Array> inputs = numbers(*graph, 9), got = compile(graph, on_cuda())(inputs),
                           wanted = compile(graph)(inputs);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], wanted[i])) << "output " << i;
}

// A tile of one row has the constant's number of this row, not that of the first.
TEST_F(CudaPrograms, RowsHaveConstantsOfTheirOwn) {
  device();
  constexpr std::int64_t rows = 9;
  const ValueType types[] = {{DType::F32, {rows, 24}}, {DType::F32, {24, 24}}};
  const auto graph = trace(
      [](Values in) {
        Array scales(DType::F32, {rows, 1});
        for (std::int64_t i = 0; i < rows; ++i) scales.set(i, 0.5 + static_cast<double>(i));
        const Value own = broadcast_to(constant(scales), {rows, 24});
        return std::vector{tanh(matmul(in[0] * own, in[1])), own + matmul(in[0], in[1])};
      },
      types);
  const std::vector<Array> inputs = numbers(*graph, 3);
  const std::vector<Array> got = compile(graph, on_cuda())(inputs), wanted = compile(graph)(inputs);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], wanted[i])) << "output " << i;
}

TEST_F(CudaPrograms, ABatchMayBeEmpty) {
  device();
  const ValueType types[] = {{DType::F32, {0, 16}}, {DType::F32, {16, 4}}};
  const auto graph = trace([](Values in) { return std::vector{tanh(matmul(in[0], in[1]))}; }, types);
  CompileOptions options = on_cuda();
  const std::vector<Array> inputs = numbers(*graph, 9);
  EXPECT_EQ(compile(graph, options)(inputs)[0].type().shape, (Shape{0, 4}));
  options.batch_axes = {0, -1};
  EXPECT_EQ(compile(graph, options)(inputs)[0].type().shape, (Shape{0, 4}));
}

TEST_F(CudaPrograms, DonatedArgumentsAreComputedInPlace) {
  device();
  const auto fn = [](Values in) { return std::vector{in[0] + 0.5 * in[1]}; };
  const ValueType type{DType::F32, {300, 70}};  // more than goes by way of page-locked memory
  const ValueType types[] = {type, type};
  const auto graph = trace(fn, types);
  CompileOptions options = on_cuda();
  options.donated = {0};
  const Executable add = compile(graph, options);
  std::vector<Array> inputs = numbers(*graph, 3), outputs(1);
  const Array wanted = compile(graph)(inputs)[0];
  EXPECT_TRUE(same_bits(add(inputs)[0], wanted));
  add.run_donating(inputs, outputs);
  EXPECT_TRUE(same_bits(outputs[0], wanted));
}

TEST_F(CudaPrograms, AdaptiveSolvesOfAnEnsembleEndEachByItself) {
  device();
  const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& mu) {
    const Value x = take(y.leaf(), 0, 0), v = take(y.leaf(), 0, 1);
    const Value parts[] = {v, mu.leaf() * (1 - square(x)) * v - x};
    return Tree<Value>(stack(parts, 0));
  };
  const Function one = [=](Values in) {
    ode::Options options;
    options.args = Tree<Value>(in[0]);
    options.controller = ode::PID(1e-4, 1e-6);
    options.max_steps = 64;
    const auto s = ode::solve(field, ode::Tsit5(), 0, 1, Tree<Value>(in[1]), options);
    return std::vector<Value>{s.y1.leaf(), s.stats.num_steps};
  };
  const ValueType types[] = {{DType::F64, {40}}, {DType::F64, {40, 2}}};
  const auto graph = trace(vmap(one, {0, 0}), types);
  std::vector<Array> inputs = numbers(*graph, 8);
  for (std::int64_t i = 0; i < 40; ++i) inputs[0].set(i, 0.5 + 0.4 * static_cast<double>(i));
  const std::vector<Array> got = compile(graph, on_cuda())(inputs), wanted = compile(graph)(inputs);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], wanted[i])) << "output " << i;
}

TEST_F(CudaPrograms, BoundWeightsAreLaidOutForTheDevice) {
  device();
  const nn::Sequential model(nn::LSTM(3, 24), nn::Last(), nn::Linear(24, 2));
  const Tree<Array> params = model.init(4);
  const ValueType x{DType::F32, {4, 6, 3}};
  const auto graph = train::predict_step(model, params, x).graph();
  std::vector<Array> bound = params.flatten();
  bound.emplace_back();
  const Array data = numbers(x, 9);
  const Array given[] = {data};
  EXPECT_TRUE(same_bits(compile_bound(graph, bound, on_cuda())(given)[0], compile_bound(graph, bound)(given)[0]));
}

TEST_F(CudaPrograms, CallsFromSeveralThreadsHaveMemoryOfTheirOwn) {
  device();
  const auto fn = [](Values in) { return std::vector{tanh(in[0]) * 3, sum(in[0])}; };
  const ValueType types[] = {{DType::F32, {50, 20}}};
  const auto graph = trace(fn, types);
  const Executable f = compile(graph, on_cuda());
  std::vector<std::future<bool>> calls;
  for (std::uint32_t seed = 0; seed < 4; ++seed)
    calls.push_back(std::async(std::launch::async, [&, seed] {
      const std::vector<Array> inputs = numbers(*graph, seed), wanted = compile(graph)(inputs);
      for (int i = 0; i < 3; ++i)
        if (!same_bits(f(inputs)[0], wanted[0])) return false;
      return true;
    }));
  for (auto& call : calls) EXPECT_TRUE(call.get());
}

// The device ends early with blocks at different places; the next call is none the worse for it.
TEST_F(CudaPrograms, ACancelledCallLeavesTheNextOneWhole) {
  EmulatedDevice& gpu = device({.deferred = true});
  const Training lstm(nn::LSTM(3, 16), 16);
  const auto graph = lstm.step.graph();
  const std::vector<Array> inputs = lstm.inputs(*graph);
  const Executable step = compile(graph, on_cuda());
  const std::vector<Array> wanted = step(inputs);
  CancelToken token;
  {
    const CancelScope scope(token);
    std::thread later([&] { token.request(); });
    later.join();
    EXPECT_THROW(step(inputs), Cancelled);
  }
  const std::vector<Array> got = step(inputs);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], wanted[i])) << "output " << i;
  EXPECT_GE(gpu.counters.launches, 2);
}

// The host is asked after each 64 steps of a loop that are followed by others, and by no step whether it is time to.
TEST_F(CudaPrograms, LoopsAskBetweenStripsOfSteps) {
  for (const bool reverse : {false, true}) {
    std::int64_t of_one_strip = 0;
    for (const std::int64_t steps : {64, 3, 63, 65, 128, 129, 200}) {
      EmulatedDevice& at = device({.multiprocessors = 1, .blocks_per_multiprocessor = 1});
      const ValueType types[] = {{DType::F32, {1, 16}}, {DType::F32, {16, 16}}, {DType::F32, {steps, 1, 16}}};
      const auto graph = trace(
          [=](Values in) {
            const Value w = in[1];
            const auto [carry, ys] = scan(
                [=](Values c, Values x) {
                  const Value next = tanh(matmul(c[0], w) + x[0]);
                  return std::pair{std::vector{next}, std::vector{next}};
                },
                in.first(1), in.subspan(2), {.reverse = reverse});
            return std::vector{carry[0], ys[0]};
          },
          types);
      const std::vector<Array> inputs = numbers(*graph, 5);
      const std::vector<Array> wanted = compile(graph)(inputs), got = compile(graph, on_cuda())(inputs);
      for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(same_bits(got[i], wanted[i])) << steps << " steps";
      if (steps == 64) of_one_strip = at.counters.anys;
      EXPECT_EQ(at.counters.anys - of_one_strip, (steps - 1) / 64) << steps << " steps";
    }
  }
}

TEST_F(CudaPrograms, OptionsOfTheProcessorAreRefused) {
  device();
  const ValueType types[] = {{DType::F32, {3}}};
  const auto graph = trace([](Values in) { return std::vector{in[0] + 1}; }, types);
  for (const auto& change : std::initializer_list<void (*)(CompileOptions&)>{
           [](CompileOptions& o) { o.dispatch = "per_op"; }, [](CompileOptions& o) { o.backend = "c"; },
           [](CompileOptions& o) { o.target = "portable"; }, [](CompileOptions& o) { o.device = "gpu"; }}) {
    CompileOptions options = on_cuda();
    change(options);
    EXPECT_THROW(compile(graph, options), UserError);
  }
}

// What the choice says, and that it is made by what a call takes.
TEST_F(CudaPrograms, AutoGoesWhereTheEstimateIsLess) {
  device({.multiprocessors = 132});
  const auto explained = [](std::int64_t rows) {
    const nn::Sequential model(nn::LSTM(8, 64), nn::Last(), nn::Linear(64, 1));
    const Tree<Array> params = model.init(0);
    return compile(train::predict_step(model, params, {DType::F32, {rows, 100, 8}}).graph()).explain();
  };
  const std::string large = explained(512), small = explained(1);
  EXPECT_NE(large.find("cuda, chosen: estimated"), std::string::npos) << large;
  EXPECT_EQ(small.find("chosen"), std::string::npos) << small;
  // Between them the device is asked and is not worth going to: with how many rows depends on the processor's vectors.
  std::string few;
  for (std::int64_t rows = 2; rows <= 6 && few.find("cpu, chosen: estimated") == std::string::npos; ++rows)
    few = explained(rows);
  EXPECT_NE(few.find("cpu, chosen: estimated"), std::string::npos) << few;
}

// That the processor's program is on disk says nothing about the device.
TEST_F(CudaPrograms, AutoChoosesAlsoWhatIsOnDisk) {
  const testing::CacheFolder folder;
  device({.multiprocessors = 132});
  const auto explained = [](std::int64_t rows, const char* where) {
    const nn::Sequential model(nn::LSTM(8, 64), nn::Last(), nn::Linear(64, 1));
    CompileOptions options;
    options.device = where;
    return compile(train::predict_step(model, model.init(0), {DType::F32, {rows, 100, 8}}).graph(), options).explain();
  };
  for (const std::int64_t rows : {512, 1}) explained(rows, "cpu");
  const std::string large = explained(512, "auto"), small = explained(1, "auto");
  EXPECT_NE(large.find("cuda, chosen: estimated"), std::string::npos) << large;
  EXPECT_NE(small.find("program (from the cache)"), std::string::npos) << small;
}

// A device that cannot do it is no reason for a program not to run.
TEST_F(CudaPrograms, AutoStaysWhereTheDeviceHasNoRoom) {
  const auto explained = [] {
    const nn::Sequential model(nn::LSTM(8, 64), nn::Last(), nn::Linear(64, 1));
    const Tree<Array> params = model.init(0);
    return compile(train::predict_step(model, params, {DType::F32, {500, 100, 8}}).graph()).explain();
  };
  device({.multiprocessors = 132, .near_bytes = 1 << 10});
  const std::string near = explained();
  EXPECT_NE(near.find("cpu, since"), std::string::npos) << near;
  device({.multiprocessors = 132, .memory_bytes = 1 << 20});
  const std::string memory = explained();
  EXPECT_NE(memory.find("cpu, since"), std::string::npos) << memory;
}

// What an executable keeps for its next call is given back where another one needs it.
TEST_F(CudaPrograms, IdleMemoryIsThereForOtherPrograms) {
  EmulatedDevice& gpu = device({.memory_bytes = 1 << 20});
  const ValueType type{DType::F32, {40000}};
  const Array x = Array::full(type.dtype, type.shape, 0.5);
  std::vector<Executable> all;
  for (const double c : {1.0, 2.0, 3.0, 4.0})
    all.push_back(compile(trace(
                              [=](Values in) {
                                return std::vector{tanh(in[0]) * c, exp(in[0] * c)};
                              },
                              {&type, 1}),
                          on_cuda()));
  for (int round = 0; round < 2; ++round)
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_NEAR(all[i]({&x, 1})[0].at(9), std::tanh(0.5) * static_cast<double>(i + 1), 1e-6);
  EXPECT_LE(gpu.bytes_in_use(), std::size_t{1} << 20);
  EXPECT_GT(gpu.bytes_in_use(), std::size_t{400000}) << "the last one keeps its memory";
}

}  // namespace
}  // namespace hotloop
