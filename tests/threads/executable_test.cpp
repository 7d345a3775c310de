#include <gtest/gtest.h>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "hotloop/nn.h"
#include "hotloop/ops.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "hotloop/transforms.h"
#include "runtime/pool.h"

namespace hotloop {
namespace {

CompileOptions interp() {
  CompileOptions options;
  options.backend = "interp";
  return options;
}

std::shared_ptr<Graph> identity(const ValueType& type) {
  const std::vector<ValueType> types = {type};
  return trace([](std::span<const Value> x) { return std::vector<Value>(x.begin(), x.end()); }, types, "identity");
}

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Executable, RunsAndGivesFreshOutputs) {
  const Executable run = compile(identity({DType::F32, {3}}), interp());
  const std::vector<Array> x = {Array::from<float>({1, 2, 3}, {3})};
  const std::vector<Array> y = run(x);
  ASSERT_EQ(y.size(), 1u);
  EXPECT_NE(y[0].raw(), x[0].raw());
  EXPECT_EQ(y[0].data<float>()[2], 3.0f);
}

TEST(Executable, OutputsMayReplaceTheInputs) {
  const Executable run = compile(identity({DType::F32, {2}}), interp());
  std::vector<Array> state = {Array::from<float>({4, 5}, {2})};
  for (int i = 0; i < 3; ++i) run.run(state, state);
  EXPECT_EQ(state[0].data<float>()[1], 5.0f);
}

TEST(Executable, IsCachedByGraphAndOptions) {
  const Executable a = compile(identity({DType::F32, {3}}), interp());
  const Executable b = compile(identity({DType::F32, {3}}), interp());
  const Executable c = compile(identity({DType::F32, {4}}), interp());
  EXPECT_EQ(&a.impl(), &b.impl());
  EXPECT_NE(&a.impl(), &c.impl());
}

TEST(Executable, NamesTheArgumentThatDoesNotFit) {
  const Executable run = compile(identity({DType::F32, {3}}), interp());
  const std::string message = message_of([&] { run(std::vector<Array>{Array(DType::F32, {4})}); });
  EXPECT_NE(message.find("argument 0 must be f32[3]"), std::string::npos) << message;
  EXPECT_NE(message.find("f32[4]"), std::string::npos) << message;
  EXPECT_THROW(run(std::vector<Array>{}), UserError);
  EXPECT_THROW(run(std::vector<Array>{Array{}}), UserError);
}

TEST(Compile, RefusesWrongOptions) {
  const auto with = [](auto set) {
    CompileOptions options = interp();
    set(options);
    return message_of([&] { compile(identity({DType::F32, {3}}), options); });
  };
  EXPECT_NE(with([](auto& o) { o.backend = "lvm"; }).find("Try: did you mean 'llvm'?"), std::string::npos)
      << with([](auto& o) { o.backend = "lvm"; });
  EXPECT_NE(with([](auto& o) { o.target = "avx1024"; }).find("host, amx, avx512, avx2, neon, portable"),
            std::string::npos);
  EXPECT_NE(with([](auto& o) { o.threads = -2; }).find("-2"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.batch_axes = {0, 0}; }).find("one entry an input"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.batch_axes = {1}; }).find("axis 1 of f32[3]"), std::string::npos);
}

// Beyond the first calls the clock is read at some of them only.
TEST(Executable, EveryCallIsCounted) {
  const Executable run = compile(identity({DType::F64, {5}}), interp());
  for (int i = 0; i < 100; ++i) run(std::vector<Array>{Array::zeros(DType::F64, {5})});
  EXPECT_NE(run.explain().find("100 calls, mean"), std::string::npos) << run.explain();
  KernelHistory::start();
  for (int i = 0; i < 3; ++i) run(std::vector<Array>{Array::zeros(DType::F64, {5})});
  EXPECT_EQ(KernelHistory::stop().size(), 3u);
}

TEST(Executable, ExplainFitsEightyColumns) {
  const Executable run = compile(identity({DType::F64, {7}}), interp());
  run(std::vector<Array>{Array::zeros(DType::F64, {7})});
  const std::string text = run.explain();
  EXPECT_NE(text.find("identity: 1 input, 1 output"), std::string::npos) << text;
  EXPECT_NE(text.find("1 call"), std::string::npos) << text;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 80u) << text;
    begin = end + 1;
  }
}

// A function is one operation, whatever it costs: a speed can be held against the machine's.
TEST(Executable, ExplainCountsArithmetic) {
  const auto explained = [](const TracedFunction& fn, const std::vector<ValueType>& types) {
    const Executable run = compile(trace(fn, types, "work"));
    std::vector<Array> arrays;
    for (const ValueType& t : types) arrays.push_back(Array::zeros(t.dtype, t.shape));
    run(arrays);
    return run.explain();
  };
  const std::string map = explained([](std::span<const Value> v) { return std::vector<Value>{tanh(v[0]) * v[0]}; },
                                    {{DType::F32, {16, 25}}});
  EXPECT_NE(map.find(" 800 flop "), std::string::npos) << map;
  const std::string product = explained([](std::span<const Value> v) { return std::vector<Value>{matmul(v[0], v[1])}; },
                                        {{DType::F32, {5, 10}}, {DType::F32, {10, 3}}});
  EXPECT_NE(product.find(" 300 flop "), std::string::npos) << product;
  EXPECT_NE(product.find("flop/s at best"), std::string::npos) << product;
  // Nobody knows how often a loop with a condition runs.
  const std::string open = explained(
      [](std::span<const Value> v) {
        return while_loop([](std::span<const Value> c) { return less(c[0], like(c[0], 3)); },
                          [](std::span<const Value> c) { return std::vector<Value>{c[0] + 1.0}; }, v, 100);
      },
      {{DType::F32, {}}});
  EXPECT_NE(open.find("at most 300 flop "), std::string::npos) << open;
  EXPECT_EQ(open.find("flop/s"), std::string::npos) << open;
}

TEST(KernelHistory, RecordsLaunchesOnlyWhileOn) {
  const Executable run = compile(identity({DType::F32, {5}}), interp());
  const std::vector<Array> x = {Array::zeros(DType::F32, {5})};
  KernelHistory::start();
  run(x);
  run(x);
  const std::vector<KernelRecord> records = KernelHistory::stop();
  run(x);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_GT(records[0].time_us, 0);
  EXPECT_TRUE(KernelHistory::stop().empty());
}

TEST(Executable, CancelThrowsUntilCleared) {
  const Executable run = compile(identity({DType::F32, {6}}), interp());
  const std::vector<Array> x = {Array::zeros(DType::F32, {6})};
  request_cancel();
  EXPECT_THROW(run(x), Cancelled);
  clear_cancel();
  EXPECT_NO_THROW(run(x));
}

// In passes, in the schedule, and while LLVM makes code of one function after the other.
TEST(Executable, CancelEndsACompilation) {
  const auto graph = [](double scale) {
    return trace(
        [scale](std::span<const Value> x) {
          Value y = x[0];
          for (int i = 0; i < 600; ++i) y = tanh(y * (scale + 0.001 * i)) + sin(reverse(y, {0}));
          return std::vector<Value>{y};
        },
        std::vector<ValueType>{{DType::F32, {16}}});
  };
  const CompileOptions options{.disabled_passes = {"reroll"}};  // as a loop it would take no time
  request_cancel();
  EXPECT_THROW(compile(graph(1), options), Cancelled);
  clear_cancel();
  const auto start = std::chrono::steady_clock::now();
  compile(graph(1), options);
  const auto whole = std::chrono::steady_clock::now() - start;
  for (const double share : {0.1, 0.3, 0.5}) {
    const auto program = graph(1 + share);
    std::thread canceller([&] {
      std::this_thread::sleep_for(whole * share);
      request_cancel();
    });
    EXPECT_THROW(compile(program, options), Cancelled) << share;
    canceller.join();
    clear_cancel();
  }
  const Executable run = compile(identity({DType::F32, {6}}));
  EXPECT_NO_THROW(run(std::vector<Array>{Array::zeros(DType::F32, {6})}));
}

// A loop of a program that no tile splits, and one inside a tile.
TEST(Executable, CancelEndsALongLoop) {
  for (const bool batched : {false, true}) {
    const std::vector<ValueType> types = {{DType::F32, {16}}};
    const auto graph = trace(
        [](std::span<const Value> x) {
          return while_loop([](std::span<const Value> v) { return less(sum(v[0]), like(v[0], -1)); },
                            [](std::span<const Value> v) { return std::vector<Value>{sin(v[0]) - 1.0}; }, x,
                            2'000'000'000);
        },
        types);
    const auto rows = vmap_graph(*graph, {true}, 4);
    const Executable run = compile(batched ? rows : graph, {.batch_axes = std::vector<int>{batched ? 0 : -1}});
    const std::vector<Array> x = {Array::full(DType::F32, batched ? Shape{4, 16} : Shape{16}, -1)};
    std::thread canceller([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      request_cancel();
    });
    EXPECT_THROW(run(x), Cancelled);
    canceller.join();
    clear_cancel();
  }
}

// The same work on few and on many elements, dealt out to the workers: the many look at the cancel flag meanwhile, the few do not.
TEST(Executable, LongAndShortStatementsOfOneKind) {
  const nn::Sequential model(nn::LSTM(64, 256), nn::Last(),
                             nn::Linear(256, 1));  // weights of 262,144, 65,536 and fewer numbers
  const optim::Adam adam(1e-3);
  const Tree<Array> params = model.init(0), state = adam.init(params);
  const Array x = Array::full(DType::F32, {8, 3, 64}, 0.5), y = Array::full(DType::F32, {8, 1}, 1.0);
  const train::Step step = train::train_step(model, losses::MSE(), adam, params, state, x.type(), y.type());
  const std::vector<Array> arguments = step.arguments(params, state, x, y);
  std::vector<Array> results[2];
  for (const int threads : {1, 2})
    results[threads - 1] = compile(step.graph(), {.threads = threads, .batch_axes = step.batch_axes})(arguments);
  for (std::size_t i = 0; i < results[0].size(); ++i)
    EXPECT_EQ(std::memcmp(results[0][i].raw(), results[1][i].raw(), results[0][i].bytes()), 0) << i;
}

// A loop inside tiles whose carries have no row of the batch: every worker computes them, in place, so no two may do it at one place.
TEST(Executable, WhatEveryWorkerComputesIsWrittenOnce) {
  constexpr std::int64_t rows = 2048, steps = 37;
  const std::vector<ValueType> types = {{DType::F32, {rows, 8}}, {DType::F32, {steps}}};
  const auto graph = trace(
      [](std::span<const Value> v) {
        const Value init[] = {v[0], like(take(v[1], 0, 0), 1), constant(0, DType::I32)}, xs[] = {v[1]};
        auto [last, ys] = scan(
            [](std::span<const Value> c, std::span<const Value> x) {
              const Value rate = c[1] * 0.98 + x[0];
              return std::pair{std::vector{tanh(c[0] * rate), rate, c[2] + constant(1, DType::I32)}, std::vector{rate}};
            },
            init, xs);
        last.push_back(ys[0]);
        return last;
      },
      types);
  std::vector<Array> in = {Array::full(DType::F32, {rows, 8}, 0.25), Array::zeros(DType::F32, {steps})};
  for (std::int64_t t = 0; t < steps; ++t) in[1].set(t, 0.01 * static_cast<double>(t));
  const std::vector<Array> one = compile(graph)(in);
  EXPECT_EQ(one[2].at(0), steps);
  const Executable many = compile(graph, {.threads = 4});
  for (int repeat = 0; repeat < 300; ++repeat) {
    const std::vector<Array> got = many(in);
    for (std::size_t k = 0; k < one.size(); ++k)
      for (std::int64_t i = 0; i < one[k].size(); ++i) ASSERT_EQ(got[k].at(i), one[k].at(i)) << "output " << k;
  }
}

TEST(Executable, SteadyCallsTakeNoFreshMemory) {
  const std::vector<ValueType> types = {{DType::F32, {64, 8}}};
  const Executable run = compile(trace(
      [](std::span<const Value> x) {
        return std::vector<Value>{tanh(x[0]) * 2.0, sum(x[0])};
      },
      types));
  std::vector<Array> in = {Array::full(DType::F32, {64, 8}, 0.25)}, out(2);
  for (int i = 0; i < 3; ++i) run.run(in, out);
  const std::uint64_t fresh = runtime::array_pool().num_fresh();
  for (int i = 0; i < 100; ++i) run.run(in, out);
  EXPECT_EQ(runtime::array_pool().num_fresh(), fresh);
  EXPECT_EQ(out[1].at(0), 128.0);
}

TEST(Jit, SpecialisesByType) {
  int traces = 0;
  const Jit f = jit(
      [&](std::span<const Value> x) {
        ++traces;
        return std::vector<Value>(x.begin(), x.end());
      },
      interp());
  f({Array::zeros(DType::F32, {2})});
  f({Array::zeros(DType::F32, {2})});
  EXPECT_EQ(traces, 1);
  f({Array::zeros(DType::F32, {3})});
  f({Array::zeros(DType::F64, {2})});
  EXPECT_EQ(traces, 3);
}

}  // namespace
}  // namespace hotloop
