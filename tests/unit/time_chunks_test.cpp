// Sums over the steps of a loop that are taken chunk by chunk: where that is sound, where it is not, and what becomes of recurrent layers' gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "compiled.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "kernel_builder.h"
#include "kernel_reference.h"
#include "passes/pipeline.h"
#include "schedule/accesses.h"
#include "schedule/schedule.h"
#include "schedule/time_chunks.h"
#include "targets.h"

namespace hotloop {
namespace {

using kernel::Affine;
using kernel::Dim;
using kernel::Dot;
using kernel::For;
using kernel::Map;
using kernel::Stmt;
using kernel::Var;

constexpr DType f32 = DType::F32;
constexpr std::int64_t rows = 8, m = 4, n = 64;

// Of each loop that has a loop over steps and a Dot in it, of how many steps that is.
std::vector<std::int64_t> chunks(const kernel::Program& program) {
  std::vector<std::int64_t> found;
  kernel::for_each_statement(program.body, [&](const auto& statement) {
    if constexpr (std::is_same_v<std::decay_t<decltype(statement)>, For>) {
      const For* steps = nullptr;
      bool sums = false;
      for (const Stmt& stmt : statement.body) {
        if (const auto* loop = std::get_if<For>(&stmt.node); loop != nullptr && steps == nullptr) steps = loop;
        kernel::for_each_statement(stmt, [&](const auto& s) {
          if constexpr (std::is_same_v<std::decay_t<decltype(s)>, Dot>) sums |= s.init && s.init->buffer == s.c.buffer;
        });
      }
      if (steps != nullptr && sums) found.push_back(steps->trip.bound);
    }
  });
  return found;
}

enum class But {
  Nothing,
  Forwards,           // the loop
  ReadBackwards,      // by the sums, of which the first then wants what comes last
  OverwrittenLater,   // each step writes into the one before it as well
  ReadOneStepBefore,  // by the sums: what the loop has written already
  ReadMeanwhile,      // the sum of the product, before the other sum is added to it
  Begun,              // the product begins with 0
  OneChunk            // few steps
};

// A loop writes g[t] = x[t] + 1; after it w += sum over t and rows of y[t] g[t], and b += sum over t and rows of g[t], b side by side with w.
struct Sums {
  kernel::Program program;
  std::int64_t trip;
};

Sums sums(But but, std::int64_t trip) {
  using kernel::MapBuilder;
  kernel::ProgramBuilder p(kernel::target_named("portable"));
  const std::int64_t step = rows * n;
  const int x = p.argument(f32, trip * step), y = p.argument(f32, trip * rows * m), w = p.result(f32, m * n + n),
            seen = p.result(f32, m * n), g = p.worker(f32, (trip + 1) * step);
  const Var t = p.var("t"), i = p.var("i"), j = p.var("j"), k = p.var("k"), r = p.var("r"), block = p.var("block"),
            row0 = p.var("row0"), tile_rows = p.var("tile_rows");
  const auto fill = [&](int buffer, std::int64_t count) {
    MapBuilder map({{i, {count, -1}}}, 1, 0);
    map.store(f32, kernel::at(buffer, Affine::of(i)), map.constant(0.0F));
    return Stmt{map.build()};
  };
  const auto copy_w = [&] {
    MapBuilder map({{i, {m * n, -1}}}, 1, 0);
    map.store(f32, kernel::at(seen, Affine::of(i)), map.load(f32, kernel::at(w, Affine::of(i))));
    return Stmt{map.build()};
  };

  For loop;
  loop.counter = t;
  loop.trip = {trip, -1};
  loop.reverse = but != But::Forwards;
  {
    MapBuilder map({{i, {step, -1}}}, 1, 0);
    const Affine here = Affine::of(t, step) + Affine::of(i);
    const int value = map.op(ir::ScalarOp::Add, f32, map.load(f32, kernel::at(x, here)), map.constant(1.0F));
    map.store(f32, kernel::at(g, here), value);
    if (but == But::OverwrittenLater) map.store(f32, kernel::at(g, here + Affine(step)), value);
    loop.body.push_back({map.build()});
  }

  const std::int64_t first = but == But::ReadOneStepBefore ? step : 0;
  Dot dot;
  dot.name = "w";
  dot.m = {m, -1};
  dot.n = {n, -1};
  dot.c = kernel::at(w);
  dot.c_m = n;
  if (but != But::Begun) {
    dot.init = dot.c;
    dot.init_m = n;
    dot.init_n = 1;
  }
  kernel::DotSegment segment{.a = kernel::at(y), .b = kernel::at(g, Affine(first)), .a_m = 1, .b_n = 1, .k = {}};
  segment.k = {{{trip * rows, -1}, m, n}};
  if (but == But::ReadBackwards) {
    segment.a.index = Affine((trip * rows - 1) * m);
    segment.b.index = Affine((trip * rows - 1) * n);
    segment.k = {{{trip * rows, -1}, -m, -n}};
  }
  dot.segments = {segment};

  MapBuilder bias({{j, {n, -1}}, {k, {trip, -1}}, {r, {rows, -1}}}, 1, 0);
  const Affine at_b = Affine::of(j) + Affine(but == But::ReadMeanwhile ? 0 : m * n);
  const int sum = bias.reduced(
      ir::ScalarOp::Add, f32,
      bias.load(f32, kernel::at(g, Affine::of(j) + Affine::of(k, step) + Affine::of(r, n) + Affine(first))));
  bias.store(f32, kernel::at(w, at_b), bias.op(ir::ScalarOp::Add, f32, bias.load(f32, kernel::at(w, at_b)), sum));

  kernel::Grid grid{.block = block, .row0 = row0, .rows = tile_rows, .total = {1, -1}, .prologue = {}, .body = {}};
  for (const auto& [buffer, count] : {std::pair(w, m * n + n), std::pair(seen, m * n), std::pair(g, (trip + 1) * step)})
    grid.prologue.push_back(fill(buffer, count));
  grid.body.push_back({loop});
  grid.body.push_back({dot});
  if (but == But::ReadMeanwhile) grid.body.push_back(copy_w());
  grid.body.push_back({bias.build()});
  p.add(std::move(grid));
  return {p.build(), trip};
}

// Whole numbers, whose sums are exact in any order.
std::vector<Array> results(const kernel::Program& program, std::int64_t trip) {
  Array x(f32, Shape{trip * rows * n}), y(f32, Shape{trip * rows * m});
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i * 7 % 11 - 5);
  for (std::int64_t i = 0; i < y.size(); ++i) y.data<float>()[i] = static_cast<float>(i * 5 % 13 - 6);
  std::vector<Array> out;
  for (const ValueType& type : program.results) out.emplace_back(type.dtype, type.shape);
  kernel::Reference(program, {x, y}, out, 1).run();
  return out;
}

void expect_the_same(const Sums& whole, const Sums& cut) {
  const std::vector<Array> expected = results(whole.program, whole.trip), found = results(cut.program, cut.trip);
  for (std::size_t i = 0; i < expected.size(); ++i)
    for (std::int64_t k = 0; k < expected[i].size(); ++k)
      ASSERT_EQ(found[i].at(k), expected[i].at(k)) << "result " << i << " at " << k;
}

// 2 KB a step: 96 steps a chunk at most, if possible all of as many.
TEST(TimeChunks, SumsFollowTheirChunk) {
  for (const But but : {But::Nothing, But::Forwards})
    for (const auto& [trip, steps] : {std::pair<std::int64_t, std::int64_t>{240, 80}, {192, 96}, {251, 84}}) {
      const Sums whole = sums(but, trip);
      Sums cut = whole;
      kernel::sum_by_chunks(cut.program);
      kernel::verify(cut.program);
      EXPECT_EQ(chunks(cut.program), std::vector<std::int64_t>{steps}) << trip;
      expect_the_same(whole, cut);
    }
}

TEST(TimeChunks, WhatTheLoopHasYetToWriteIsWaitedFor) {
  for (const But but :
       {But::ReadBackwards, But::OverwrittenLater, But::ReadOneStepBefore, But::ReadMeanwhile, But::Begun}) {
    const Sums whole = sums(but, 240);
    Sums cut = whole;
    kernel::sum_by_chunks(cut.program);
    kernel::verify(cut.program);
    expect_the_same(whole, cut);
    // What was written a step before is there; of two sums, of which one is read between them, the first one is cut.
    const bool is_cut = but == But::ReadOneStepBefore || but == But::ReadMeanwhile;
    EXPECT_EQ(!chunks(cut.program).empty(), is_cut) << static_cast<int>(but);
  }
}

TEST(TimeChunks, WhatHasRoomStaysWhole) {
  Sums all = sums(But::OneChunk, 96);
  kernel::sum_by_chunks(all.program);
  EXPECT_TRUE(chunks(all.program).empty());
}

class OfLayers : public ::testing::TestWithParam<testing::Compiled> {};

struct Training {
  Training(nn::Layer layer, std::int64_t width, std::int64_t steps, std::int64_t batch, DType dtype)
      : model(std::move(layer), nn::Last(), nn::Linear(width, 1)),
        params(model.init(3, dtype)),
        state(optimizer.init(params)),
        x(testing::normal_array({batch, steps, 5}, dtype, 1)),
        y(testing::normal_array({batch, 1}, dtype, 2)),
        step(train::train_step(model, losses::MSE(), optimizer, params, state, x.type(), y.type())) {}
  std::vector<std::int64_t> chunks() const {
    ScheduleOptions options;
    options.target = kernel::target_named("avx2");
    return hotloop::chunks(schedule(*passes::optimize(*step.graph(), {}), options));
  }
  std::vector<Array> run(const CompileOptions& options) const {
    return compile(step.graph(), options)(step.arguments(params, state, x, y));
  }
  nn::Sequential model;
  optim::SGD optimizer{1.0};
  Tree<Array> params, state;
  Array x, y;
  train::Step step;
};

// A sum that comes and goes with each chunk is to be small beside what it sums.
TEST(TimeChunks, LargeWeightsAreSummedAtOnce) {
  EXPECT_FALSE(Training(nn::LSTM(5, 32), 32, 120, 16, f32).chunks().empty());
  EXPECT_TRUE(Training(nn::LSTM(5, 256), 256, 40, 16, f32).chunks().empty());
  EXPECT_TRUE(Training(nn::LSTM(5, 32), 32, 20, 16, f32).chunks().empty());
}

// Tiles that are full and that are not, steps that are cut evenly and that are not; by one worker and by two to the bit.
TEST_P(OfLayers, GradientsAreWhatTheInterpreterFinds) {
  const auto check = [&](const nn::Layer& layer, std::int64_t width, std::int64_t steps, std::int64_t batch,
                         DType dtype, double close) {
    const Training training(layer, width, steps, batch, dtype);
    EXPECT_FALSE(training.chunks().empty()) << steps << " steps of " << batch;
    CompileOptions interp;
    interp.backend = "interp";
    CompileOptions one = GetParam().options(), two = one;
    two.threads = 2;
    const auto expected = training.run(interp), found = training.run(one), by_two = training.run(two);
    for (std::size_t i = 0; i < expected.size(); ++i)
      for (std::int64_t k = 0; k < expected[i].size(); ++k) {
        ASSERT_NEAR(found[i].at(k), expected[i].at(k), close * std::max(1.0, std::abs(expected[i].at(k))))
            << steps << " steps of " << batch << ", output " << i << " at " << k;
        ASSERT_EQ(found[i].at(k), by_two[i].at(k)) << "output " << i << " at " << k;
      }
  };
  check(nn::LSTM(5, 32), 32, 71, 32, f32, 2e-5);
  check(nn::LSTM(5, 32), 32, 60, 29, DType::F64, 5e-14);
  check(nn::GRU(5, 48), 48, 60, 40, f32, 2e-5);
}

INSTANTIATE_TEST_SUITE_P(TimeChunks, OfLayers, ::testing::ValuesIn(testing::all_compiled()),
                         [](const auto& tested) { return testing::name_of_case(tested.param); });

}  // namespace
}  // namespace hotloop
