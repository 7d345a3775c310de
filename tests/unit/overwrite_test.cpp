// What is read for the last time gives its memory to what is written at the same point: where that is sound, where it is not, and what an
// LSTM's training step saves by it.
#include <gtest/gtest.h>

#include <set>

#include "hotloop/nn.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "llvm_backend.h"
#include "passes/pipeline.h"
#include "schedule/footprint.h"
#include "schedule/overwrite.h"
#include "schedule/schedule.h"

namespace hotloop::kernel {
namespace {

constexpr std::int64_t steps = 5, rows = 3, n = 12;

enum class But {
  Nothing,
  ReadAgain,             // after the second loop
  ReadElsewhere,         // by the second loop at another step
  ReadElsewhereEarlier,  // the same, before the map that writes
  ReadEarlier,           // by another map of the same iteration, and by the one that writes
  ReadEarlierOnly,       // by another map of the same iteration alone, which leaves the sum over a row
  ReadTwice,             // by the map that writes, at another step
  WrittenMeanwhile,      // the new buffer, by another map of the second loop
  WrittenBefore,         // the new buffer, before the second loop
  ReadFirst,             // in a loop around: it lives from one iteration to the next
  InRows,                // written row by row with one counter for what the map counts by two
  AnotherLayout,         // steps and rows exchanged, which the digits can tell
  OneStep                // no loop
};

// A loop over steps writes `first` and `second`; another one, backwards, reads both and writes their product and difference side by side
// into `both`, which is the result.
struct Tapes {
  Program program;
  int first, second, both;
};

Tapes tapes(But but) {
  ProgramBuilder p(target_named("portable"));
  const std::int64_t size = steps * rows * n;
  const int a = p.argument(f32, size), b = p.argument(f32, size), out = p.result(f32, 2 * size),
            extra = p.result(f32, size);
  const int first = p.worker(f32, size), second = p.worker(f32, size), both = p.worker(f32, 2 * size),
            sums = p.worker(f32, rows);
  const Var outer = p.var("s"), t = p.var("t"), u = p.var("u"), r = p.var("r"), i = p.var("i");
  const bool exchanged = but == But::AnotherLayout;
  const auto place = [&](Var step, std::int64_t width) {
    return Affine::of(step, (exchanged ? 1 : rows) * width) + Affine::of(r, (exchanged ? steps : 1) * width) +
           Affine::of(i);
  };
  const std::vector<Dim> points = {{r, {rows, -1}}, {i, {n, -1}}};
  const auto copy = [&](int to, int from, std::int64_t count) {
    MapBuilder m({{i, {count, -1}}}, 1, 0);
    m.store(f32, at(to, Affine::of(i)), m.load(f32, at(from, Affine::of(i))));
    return Stmt{m.build()};
  };

  MapBuilder writer(points, 2, 1);
  const int x = writer.load(f32, at(a, place(t, n))), y = writer.load(f32, at(b, place(t, n)));
  if (but != But::InRows) writer.store(f32, at(first, place(t, n)), writer.op(ScalarOp::Mul, f32, x, y));
  writer.store(f32, at(second, place(t, n)), writer.op(ScalarOp::Add, f32, x, y));
  Block forward = {{writer.build()}};
  if (but == But::InRows) {
    MapBuilder m({{i, {rows * n, -1}}}, 1, 0);
    const Affine flat = Affine::of(t, rows * n) + Affine::of(i);
    m.store(f32, at(first, flat), m.op(ScalarOp::Neg, f32, m.load(f32, at(a, flat))));
    forward.push_back({m.build()});
  }

  MapBuilder reader(points, 2, 1);
  const Var step = but == But::OneStep ? t : u;
  const int v = but == But::ReadEarlierOnly ? reader.load(f32, at(sums, Affine::of(r)))
                                            : reader.load(f32, at(first, place(step, n))),
            w = reader.load(f32, at(second, place(step, n)));
  int product = reader.op(ScalarOp::Mul, f32, v, w);
  if (but == But::ReadTwice)
    product = reader.op(ScalarOp::Add, f32, product, reader.load(f32, at(first, place(u, n).without(u))));
  reader.store(f32, at(both, place(step, 2 * n)), product);
  reader.store(f32, at(both, place(step, 2 * n) + Affine(n)), reader.op(ScalarOp::Sub, f32, v, w));
  Block backward = {{reader.build()}};
  if (but == But::ReadElsewhere || but == But::ReadElsewhereEarlier) {
    MapBuilder m(points, 2, 1);
    m.store(f32, at(extra, place(u, n)), m.load(f32, at(first, place(u, n).without(u))));
    backward.insert(but == But::ReadElsewhere ? backward.end() : backward.begin(), {m.build()});
  }
  if (but == But::ReadEarlier || but == But::ReadEarlierOnly) {
    MapBuilder m(points, 1, 1);
    const int total = m.reduced(ScalarOp::Add, f32, m.load(f32, at(first, place(u, n))));
    m.store(f32, at(sums, Affine::of(r)), total);
    backward.insert(backward.begin(), {m.build()});
  }
  if (but == But::WrittenMeanwhile) {
    MapBuilder m({{i, {2 * n, -1}}}, 1, 0);
    const Access last = at(both, Affine::of(u, 2 * rows * n) + Affine::of(i));
    m.store(f32, last, m.op(ScalarOp::Neg, f32, m.load(f32, last)));
    backward.push_back({m.build()});
  }

  Block body;
  const Stmt clear = copy(extra, a, size);
  body.push_back(clear);
  if (but == But::WrittenBefore) body.push_back(copy(both, a, size));
  if (but == But::ReadFirst) {
    body.push_back(copy(first, a, size));
    body.push_back({For{outer,
                        {2, -1},
                        false,
                        {},
                        {},
                        {copy(extra, first, size),
                         {For{t, {steps, -1}, false, {}, {}, forward}},
                         {For{u, {steps, -1}, true, {}, {}, backward}}}}});
  } else if (but == But::OneStep) {
    backward.insert(backward.begin(), forward[0]);
    body.push_back({For{t, {steps, -1}, false, {}, {}, backward}});
  } else {
    body.push_back({For{t, {steps, -1}, false, {}, {}, forward}});
    body.push_back({For{u, {steps, -1}, true, {}, {}, backward}});
  }
  if (but == But::ReadAgain) body.push_back(copy(extra, first, size));
  body.push_back(copy(out, both, 2 * size));
  p.add(Single{std::move(body)});
  return {p.build(), first, second, both};
}

std::set<int> touched(const Program& program) {
  std::set<int> buffers;
  for (const Touch& touch : touches_of(program.body)) buffers.insert(touch.buffer);
  return buffers;
}

std::vector<Array> results_of(const Program& program) {
  std::mt19937 random(7);
  std::vector<Array> arguments, results;
  for (const ValueType& type : program.arguments)
    arguments.push_back(random_values(type.dtype, type.shape.size(), random));
  for (const ValueType& type : program.results) results.emplace_back(type.dtype, type.shape);
  Reference(program, arguments, results, 1).run();
  return results;
}

// Whether the first buffer found another place; the results are the same in any case.
bool overwrites(But but) {
  const Tapes before = tapes(but);
  Tapes after = before;
  overwrite_last_reads(after.program);
  verify(after.program);
  const std::vector<Array> expected = results_of(before.program), found = results_of(after.program);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(std::memcmp(expected[i].raw(), found[i].raw(), expected[i].bytes()), 0) << static_cast<int>(but);
  EXPECT_TRUE(touched(before.program).contains(before.first));
  return !touched(after.program).contains(after.first);
}

TEST(Overwrite, WhatIsReadForTheLastTime) {
  EXPECT_TRUE(overwrites(But::Nothing));
  EXPECT_TRUE(overwrites(But::AnotherLayout));
  EXPECT_TRUE(overwrites(But::ReadEarlier));
  EXPECT_TRUE(overwrites(But::ReadEarlierOnly));
  Tapes both = tapes(But::Nothing);
  overwrite_last_reads(both.program);
  EXPECT_FALSE(touched(both.program).contains(both.second));
}

TEST(Overwrite, NothingThatIsReadLater) {
  for (const But but : {But::ReadAgain, But::ReadElsewhere, But::ReadElsewhereEarlier, But::ReadTwice, But::ReadFirst})
    EXPECT_FALSE(overwrites(but)) << static_cast<int>(but);
}

TEST(Overwrite, NothingWhereOtherStatementsWrite) {
  for (const But but : {But::WrittenMeanwhile, But::WrittenBefore})
    EXPECT_FALSE(overwrites(but)) << static_cast<int>(but);
}

TEST(Overwrite, OnlyTapesWhosePlacesCanBeCounted) {
  for (const But but : {But::InRows, But::OneStep}) EXPECT_FALSE(overwrites(but)) << static_cast<int>(but);
}

// A step of an LSTM leaves four gates, tanh(c), the old c and the old h, and its gradient four numbers for the gates: these lie where four of
// the seven were.
TEST(Overwrite, AnLstmsGradientsLieInItsTape) {
  constexpr std::int64_t length = 40, in = 8, hidden = 32, batch = 24, number = 4;
  const nn::Sequential model(nn::LSTM(in, hidden), nn::Last(), nn::Linear(hidden, 1));
  const Tree<Array> params = model.init(0);
  const optim::Adam optimizer(1e-3);
  const train::Step step = train::train_step(model, losses::MSE(), optimizer, params, optimizer.init(params),
                                             {f32, {batch, length, in}}, {f32, {batch, 1}});
  ScheduleOptions options;
  options.target = target_named("avx512");
  options.batch_axes = step.batch_axes;
  options.tile_rows = 8;
  const Program program = schedule(*passes::optimize(*step.graph(), {}), options);
  EXPECT_GE(program.worker_bytes, 7 * length * options.tile_rows * hidden * number);
  EXPECT_LT(program.worker_bytes, 7.5 * length * options.tile_rows * hidden * number);
}

}  // namespace
}  // namespace hotloop::kernel
