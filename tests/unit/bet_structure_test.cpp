// What a training step must come out as, for the library's LSTM and, untouched, for cells that users wrote: the claims about speed
// that can be counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

#include "hotloop/hotloop.h"
#include "hotloop/train.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"
#include "user_cells.h"

namespace {

// Counts allocations of this thread while a call is watched.
thread_local bool watching = false;
thread_local int num_allocations = 0;

}  // namespace

// All forms are replaced, so that memory goes back the way it came: a sanitizer brings forms of its own.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  if (watching) ++num_allocations;
  return std::malloc(size);
}
void* operator new(std::size_t size) {
  if (void* p = operator new(size, std::nothrow)) return p;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t& tag) noexcept { return operator new(size, tag); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace hotloop {
namespace {

struct Case {
  std::string name;
  std::int64_t inputs;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name << " with " << c.inputs << " inputs"; }

constexpr std::int64_t batch = 40, time_steps = 20, hidden = 32;

nn::Layer cell_of(const Case& c) {
  if (c.name == "lstm") return nn::LSTM(c.inputs, hidden);
  if (c.name == "coupled") return nn::Recurrent(testing::CoupledTwoSpeedCell(c.inputs, hidden));
  return nn::Recurrent(testing::LayerNormLstmCell(c.inputs, hidden));
}

struct TrainingStep {
  explicit TrainingStep(const Case& c)
      : model(cell_of(c), nn::Last(), nn::Linear(c.name == "coupled" ? 2 * hidden : hidden, 1)),
        params(model.init(0)),
        optimizer(1e-3),
        state(optimizer.init(params)),
        x(Array::full(DType::F32, {batch, time_steps, c.inputs}, 0.25)),
        y(Array::full(DType::F32, {batch, 1}, 1)),
        step(train::train_step(model, losses::MSE(), optimizer, params, state, x.type(), y.type())) {}
  nn::Sequential model;
  Tree<Array> params;
  optim::Adam optimizer;
  Tree<Array> state;
  Array x, y;
  train::Step step;

  kernel::Program program() const {
    passes::PassOptions pass_options;
    pass_options.variable_rows = true;
    pass_options.batch_axes = step.batch_axes;
    ScheduleOptions options;
    options.target = kernel::target_named("avx512");
    options.batch_axes = step.batch_axes;
    options.variable_rows = true;
    return schedule(*passes::optimize(*step.graph(), pass_options), options);
  }
};

// Statements by kind and by the depth of the loops around them.
struct Count {
  int grids = 0, loops = 0, inner_products = 0;
  std::vector<const kernel::Dot*> dots_in_loops, dots_outside;

  void walk(const kernel::Block& block, bool in_loop) {
    for (const kernel::Stmt& stmt : block) {
      if (const auto* dot = std::get_if<kernel::Dot>(&stmt.node))
        (in_loop ? dots_in_loops : dots_outside).push_back(dot);
      if (const auto* map = std::get_if<kernel::Map>(&stmt.node)) inner_products += map->name == "inner_products";
      if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) {
        ++loops;
        walk(loop->body, true);
      }
      if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) {
        ++grids;
        walk(grid->body, in_loop);
      }
      if (const auto* single = std::get_if<kernel::Single>(&stmt.node)) walk(single->body, in_loop);
    }
  }
};

class Bet : public ::testing::TestWithParam<Case> {};

TEST_P(Bet, TheTrainingStepHasTheShapeOfAHandWrittenOne) {
  const TrainingStep training(GetParam());
  const kernel::Program program = training.program();
  Count count;
  count.walk(program.body, false);
  SCOPED_TRACE(kernel::print(program));
  EXPECT_EQ(count.grids, 1) << "forward, backward and the weight gradients are one tile program";
  // Few inputs: x and h are summed in one pass over the accumulators. Many: the projection of x left the recurrence, as one dot
  // over the rows of all steps.
  const bool projected = GetParam().inputs >= 64;
  const std::size_t first = projected ? 1 : 0;
  EXPECT_EQ(count.loops, projected ? 3 : 2) << "one loop forward, one backward";
  ASSERT_EQ(count.dots_in_loops.size(), first + 2)
      << "one dot a step each way: gates merged, weight gradients deferred";
  if (projected) {
    EXPECT_EQ(count.dots_in_loops[0]->n.bound, 4 * hidden);
    EXPECT_EQ(count.dots_in_loops[0]->segments[0].k[0].extent.bound, GetParam().inputs);
  }
  const kernel::Dot& forward = *count.dots_in_loops[first];
  EXPECT_EQ(forward.n.bound, 4 * hidden) << "the four gates are one wide dot";
  EXPECT_EQ(forward.segments.size(), projected ? 1u : 2u);
  for (const kernel::DotSegment& s : forward.segments) EXPECT_TRUE(s.packed());
  const kernel::Dot& backward = *count.dots_in_loops[first + 1];
  EXPECT_EQ(backward.n.bound, hidden);
  EXPECT_EQ(count.dots_outside.size(), 4u) << "head backward to weight and input; W_ih and W_hh";
  EXPECT_EQ(count.inner_products, 1) << "head forward: one output a row, summed over lanes";
}

TEST_P(Bet, OneLaunchAndNoAllocationAStep) {
  const TrainingStep training(GetParam());
  CompileOptions options;
  options.batch_axes = training.step.batch_axes;
  const Executable run = compile(training.step.graph(), options);
  const std::vector<Array> inputs = training.step.arguments(training.params, training.state, training.x, training.y);
  std::vector<Array> outputs(run.output_types().size());
  for (int warm = 0; warm < 3; ++warm) run.run(inputs, outputs);
  KernelHistory::start();
  run.run(inputs, outputs);
  EXPECT_EQ(KernelHistory::stop().size(), 1u) << "a training step is one kernel";
  num_allocations = 0;
  watching = true;
  for (int i = 0; i < 10; ++i) run.run(inputs, outputs);
  watching = false;
  EXPECT_EQ(num_allocations, 0);
}

// What a tile keeps of each row and step, in rows of H numbers (and what is one number a row).
std::int64_t kept_rows(const kernel::Program& program) {
  const kernel::Grid* grid = nullptr;
  for (const kernel::Stmt& stmt : program.body)
    if (const auto* g = std::get_if<kernel::Grid>(&stmt.node)) grid = g;
  std::int64_t elements = 0;
  for (const kernel::Buffer& buffer : program.buffers)
    if (buffer.space == kernel::Space::Worker && buffer.elements >= time_steps * grid->tile_rows * hidden)
      elements += buffer.elements;
  return elements / (time_steps * grid->tile_rows * hidden);
}

TEST(Tape, GradientsOfGainsAreSumsNotSteps) {
  // h, c, four gates and tanh of the cell; the gradients of the four sums, which those of the weights need of all steps at once, lie where
  // four of them were.
  EXPECT_EQ(kept_rows(TrainingStep({"lstm", 8}).program()), 7);
  // Further the four centred sums; the gradients of five gains and five biases need no steps.
  EXPECT_EQ(kept_rows(TrainingStep({"ln_lstm", 8}).program()), 11);
}

// The gradient of what scales in each step, seen through the derivative of an activation of weights: a sum over the batch in each step, of
// which the loop back must be free to be in a tile.
TEST(Tape, TheWayBackOfACellThatBlendsByALearnedRateIsInTheTile) {
  const kernel::Program program = TrainingStep({"coupled", 8}).program();
  Count count;
  count.walk(program.body, false);
  SCOPED_TRACE(kernel::print(program));
  EXPECT_EQ(count.grids, 1);
  EXPECT_EQ(count.loops, 2);
  EXPECT_EQ(count.dots_in_loops.size(), 2u);
}

// What follows a row's sums, of one number a row, is done where the sums end: statements over whole rows alone, and one fewer for each
// mean, variance and gradient of one.
TEST(Rows, WhatFollowsSumsIsDoneWhereTheyEnd) {
  const kernel::Program program = TrainingStep({"ln_lstm", 8}).program();
  SCOPED_TRACE(kernel::print(program));
  int num_maps = 0;
  const std::function<void(const kernel::Block&, bool)> walk = [&](const kernel::Block& block, bool in_loop) {
    for (const kernel::Stmt& stmt : block) {
      if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) walk(grid->body, in_loop);
      if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) walk(loop->body, true);
      const auto* map = std::get_if<kernel::Map>(&stmt.node);
      if (map == nullptr || !in_loop) continue;
      ++num_maps;
      EXPECT_EQ(map->dims[static_cast<std::size_t>(map->vector_dim)].extent.bound, hidden) << map->name;
    }
  };
  walk(program.body, false);
  // Forward: sums, centred, squares; gates; the same of the cell, whose centred values are not kept; h. Backward: the cell's and one gate's, then
  // the other three, each in five.
  EXPECT_EQ(num_maps, 7 + 9);
}

// A voice has its memory from the start: real time begins with the first step.
TEST(Streaming, NoStepAllocatesNotEvenTheFirst) {
  const nn::Sequential model(nn::LSTM(8, hidden), nn::Linear(hidden, 1));
  const Stream stream(model, model.init(0), 8);
  Stream::Voice voice = stream.voice();
  const std::vector<float> x(8, 0.5F);
  std::vector<float> y(1);
  num_allocations = 0;
  watching = true;
  for (int i = 0; i < 3; ++i) voice.step(x, y);
  voice.reset();
  watching = false;
  EXPECT_EQ(num_allocations, 0);
}

kernel::Grid grid_of(const kernel::Program& program) {
  for (const kernel::Stmt& stmt : program.body)
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) return *grid;
  ADD_FAILURE() << "no tiles in\n" << kernel::print(program);
  return {};
}

kernel::Program for_avx512(const train::Step& step, int num_workers) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  options.num_workers = num_workers;
  return schedule(*passes::optimize(*step.graph(), {}), options);
}

// A step of Adam, of ten steps of five features.
kernel::Program lstm_training(std::int64_t batch, std::int64_t hidden, int num_workers = 2) {
  const nn::Sequential model(nn::LSTM(5, hidden), nn::Last(), nn::Linear(hidden, 1));
  const Tree<Array> params = model.init(0);
  const optim::Adam adam(1e-3);
  return for_avx512(train::train_step(model, losses::MSE(), adam, params, adam.init(params),
                                      {DType::F32, {batch, 10, 5}}, {DType::F32, {batch, 1}}),
                    num_workers);
}

// Rows of a tile follow from what a row keeps in memory: what is fused into maps costs no room, however much of it there is.
TEST(Tiles, AreHighWhereARowKeepsLittle) {
  const auto tile_rows = [](const TracedFunction& fn) {
    const auto graph = trace(fn, std::vector<ValueType>{{DType::F32, {1000, 64}}, {DType::F32, {64, 64}}}, "rows");
    ScheduleOptions options;
    options.target = kernel::target_named("avx512");
    options.batch_axes = {0, -1};
    return grid_of(schedule(*graph, options)).tile_rows;
  };
  const auto chain = [](Value v, int length) {
    for (int i = 0; i < length; ++i) v = v * v + 1.0;
    return v;
  };
  const std::int64_t one =
      tile_rows([&](std::span<const Value> v) { return std::vector<Value>{matmul(chain(v[0], 1), v[1])}; });
  EXPECT_EQ(one, tile_rows([&](std::span<const Value> v) { return std::vector<Value>{matmul(chain(v[0], 9), v[1])}; }));
  const std::int64_t four = tile_rows([&](std::span<const Value> v) {
    Value x = v[0];
    for (int i = 0; i < 4; ++i) x = matmul(chain(x, 1), v[1]);
    return std::vector<Value>{x};
  });
  EXPECT_GT(one, four);
}

// Workers have equal shares of the batch: where a tile can have a number of rows that divides it, each worker of two has half of the rows. The
// rows of full tiles are static extents, and then no code is made for tiles that are cut short.
TEST(Tiles, GiveWorkersEqualShares) {
  const auto share_of_two = [](const kernel::Grid& grid) {
    std::int64_t rows[2] = {0, 0};
    for (std::int64_t b = 0; b < grid.num_blocks; ++b) {
      const std::int64_t first = b * grid.tiles_per_block * grid.tile_rows;
      rows[b % 2] += std::clamp<std::int64_t>(grid.total.bound - first, 0, grid.tiles_per_block * grid.tile_rows);
    }
    return static_cast<double>(std::max(rows[0], rows[1])) / static_cast<double>(grid.total.bound);
  };
  const std::function<bool(const kernel::Block&, kernel::Var)> mentions = [&](const kernel::Block& block,
                                                                              kernel::Var rows) {
    return std::ranges::any_of(block, [&](const kernel::Stmt& stmt) {
      if (const auto* dot = std::get_if<kernel::Dot>(&stmt.node)) return dot->m.var == rows;
      if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) return mentions(loop->body, rows);
      const auto* map = std::get_if<kernel::Map>(&stmt.node);
      return map != nullptr && std::ranges::any_of(map->dims, [&](const auto& d) { return d.extent.var == rows; });
    });
  };
  for (const std::int64_t hidden : {16, 64, 128})
    for (const std::int64_t batch : {8, 10, 16, 20, 24, 32, 48, 64, 96, 128, 256, 512}) {
      const kernel::Program program = lstm_training(batch, hidden);
      const kernel::Grid grid = grid_of(program);
      EXPECT_EQ(share_of_two(grid), 0.5) << "batch " << batch << ", hidden " << hidden << ", tile " << grid.tile_rows;
      EXPECT_FALSE(mentions(grid.body, grid.rows)) << kernel::print(program);
    }
  // Sums that leave the second cache are passed over once more for each block: fewer blocks, still of equal shares.
  for (const auto& [batch, hidden] : {std::pair<std::int64_t, std::int64_t>{64, 512}, {32, 512}, {128, 256}}) {
    const kernel::Grid grid = grid_of(lstm_training(batch, hidden));
    EXPECT_GE(grid.tile_rows * grid.tiles_per_block, 16) << "batch " << batch << ", hidden " << hidden;
    EXPECT_EQ(share_of_two(grid), 0.5) << "batch " << batch << ", hidden " << hidden;
  }
  for (const std::int64_t batch : {50, 100, 127, 200, 1000})
    EXPECT_LE(share_of_two(grid_of(lstm_training(batch, 64))), 0.54) << "batch " << batch;
}

// Weights that leave the second cache come from further away for each tile: tall tiles share the way, as tall as all rows that a worker has.
TEST(Tiles, AreTallWhereWeightsAreLarge) {
  const auto tile_rows = [](std::int64_t hidden, int num_workers) {
    const nn::Sequential model(nn::LSTM(5, hidden));
    const train::Step step = train::predict_step(model, model.init(0), {DType::F32, {64, 10, 5}});
    return grid_of(for_avx512(step, num_workers)).tile_rows;
  };
  EXPECT_EQ(tile_rows(64, 1), 8);
  EXPECT_EQ(tile_rows(128, 1), 64);
  EXPECT_EQ(tile_rows(128, 2), 32);
  EXPECT_EQ(tile_rows(128, 8), 8);
  for (const int num_workers : {1, 2, 4, 8}) EXPECT_EQ(tile_rows(512, num_workers), 64 / std::min(num_workers, 4));
}

// So in training, where sums over the batch must not depend on the number of workers: a tile adds them up in the parts that four workers would have.
TEST(Tiles, AddUpTheSamePartsForAnyNumberOfWorkers) {
  const auto sums = [](const kernel::Program& program) {
    std::vector<std::int64_t> elements;
    for (const kernel::Buffer& b : program.buffers)
      if (b.name == "partial") elements.push_back(b.elements);
    return elements;
  };
  const auto parts_of = [](const kernel::Block& body) {
    std::int64_t parts = 0;
    for (const kernel::Stmt& stmt : body)
      if (const auto* loop = std::get_if<kernel::For>(&stmt.node); loop != nullptr && loop->trip.bound != 10)
        parts = loop->trip.bound;
    return parts;
  };
  const kernel::Program of_four = lstm_training(64, 512, 4);
  EXPECT_EQ(parts_of(grid_of(of_four).body), 0);
  for (const int num_workers : {1, 2}) {
    const kernel::Program program = lstm_training(64, 512, num_workers);
    EXPECT_EQ(grid_of(program).tile_rows, 64 / num_workers);
    EXPECT_EQ(parts_of(grid_of(program).body), 4 / num_workers);
    EXPECT_EQ(sums(program), sums(of_four));
  }
  EXPECT_EQ(grid_of(lstm_training(64, 256, 1)).tile_rows, 16) << "weights that the second cache nearly holds";
}

// The weights of the steps and those of their gradients, each less than the second cache and together more, do not drive each other out.
TEST(Tiles, AreAsTallAsTheWeightsOfOneLoopAsk) { EXPECT_EQ(grid_of(lstm_training(64, 192)).tile_rows, 8); }

INSTANTIATE_TEST_SUITE_P(All, Bet,
                         ::testing::Values(Case{"lstm", 8}, Case{"lstm", 128}, Case{"ln_lstm", 8},
                                           Case{"ln_lstm", 128}),
                         [](const auto& info) { return info.param.name + "_I" + std::to_string(info.param.inputs); });

}  // namespace
}  // namespace hotloop
