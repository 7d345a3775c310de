// How many threads the engine takes for a call: those whose work saves more than waking them costs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "hotloop/hotloop.h"
#include "schedule/cost.h"

namespace hotloop {
namespace {

// The engine decides, as in any program; test programs otherwise take all threads always.
class TeamSize : public ::testing::Test {
 protected:
  void SetUp() override { setenv("HOTLOOP_TEAM", "worth", 1); }
  void TearDown() override { setenv("HOTLOOP_TEAM", "always", 1); }
};

struct Job {
  Executable run;
  std::vector<Array> arguments;
};

// A training step of LSTM(8, hidden) and a head.
Job training(std::int64_t steps, std::int64_t hidden, std::int64_t batch, std::int64_t rows, int threads) {
  const nn::Sequential model(nn::LSTM(8, hidden), nn::Last(), nn::Linear(hidden, 1));
  const Tree<Array> params = model.init(0);
  const optim::Adam adam(1e-3);
  const Tree<Array> state = adam.init(params);
  const train::Step step = train::train_step(model, losses::MSE(), adam, params, state, {DType::F32, {batch, steps, 8}},
                                             {DType::F32, {batch, 1}});
  CompileOptions options;
  options.threads = threads;
  options.batch_axes = step.batch_axes;
  const Array x = nn::uniform(1, {rows, steps, 8}, DType::F32, -1, 1), y = nn::uniform(2, {rows, 1}, DType::F32, -1, 1);
  return {compile(step.graph(), options), step.arguments(params, state, x, y)};
}

int workers_of(const Job& job) {
  KernelHistory::start();
  job.run(job.arguments);
  return KernelHistory::stop().at(0).num_workers;
}

TEST_F(TeamSize, LittleWorkStaysOnOneThread) {
  const auto graph = trace([](std::span<const Value> v) { return std::vector<Value>{tanh(matmul(v[0], v[1]))}; },
                           std::vector<ValueType>{{DType::F32, {16, 8}}, {DType::F32, {8, 4}}}, "small");
  CompileOptions options;
  options.threads = 2;
  const Job small{compile(graph, options), {Array::zeros(DType::F32, {16, 8}), Array::zeros(DType::F32, {8, 4})}};
  EXPECT_EQ(workers_of(small), 1);
  EXPECT_NE(small.run.explain().find("1 of 2 work on"), std::string::npos) << small.run.explain();
}

TEST_F(TeamSize, MuchWorkTakesAll) {
  const Job large = training(20, 32, 48, 48, 2);
  EXPECT_EQ(workers_of(large), 2);
  EXPECT_NE(large.run.explain().find("2 of 2 work on 48 rows"), std::string::npos) << large.run.explain();
}

// The same executable: a last batch of one row is one tile, which no second worker can share.
TEST_F(TeamSize, FollowsTheRowsOfTheCall) {
  const Job whole = training(20, 32, 48, 48, 2), rest = training(20, 32, 48, 1, 2);
  ASSERT_EQ(&whole.run.impl(), &rest.run.impl());
  EXPECT_EQ(workers_of(whole), 2);
  EXPECT_EQ(workers_of(rest), 1);
}

TEST_F(TeamSize, ChangesNoResult) {
  for (const std::int64_t rows : {1, 5, 13, 48}) {
    const Job one = training(20, 32, 48, rows, 1), two = training(20, 32, 48, rows, 2);
    const std::vector<Array> a = one.run(one.arguments), b = two.run(two.arguments);
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_EQ(std::memcmp(a[i].raw(), b[i].raw(), a[i].bytes()), 0) << rows << " rows, output " << i;
  }
}

// A grid of so many tiles, each of so many points.
kernel::Program tiles(std::int64_t count, std::int64_t points) {
  using namespace kernel;
  Program program;
  program.target = target_named("avx512");
  program.vars = {"rows", "block", "row0", "tile", "i"};
  program.buffers = {{.name = "x", .dtype = DType::F32, .elements = points, .space = Space::Shared, .data = {}}};
  program.max_rows = count;
  Map map;
  map.dims = {{4, {points, -1}}};
  map.num_outer = 1;
  map.vector_dim = 0;
  Instr load, store;
  load.kind = Instr::Kind::Load;
  store.kind = Instr::Kind::Store;
  load.access = store.access = {0, Affine::of(4), {}};
  store.args[0] = 0;
  map.instrs = {load, store};
  map.body_end = 2;
  Grid grid;
  grid.block = 1;
  grid.row0 = 2;
  grid.rows = 3;
  grid.total = {count, rows_var};
  grid.num_blocks = count;
  grid.body = {{map}};
  program.body = {{std::move(grid)}, {Barrier{}}};
  return program;
}

TEST(Cost, TilesAreSharedAndTheTeamIsPaidFor) {
  const kernel::TeamCost team{.wake_ns = 1000, .join_ns = 100, .shared_ns_per_byte = 0};
  const kernel::Program program = tiles(8, 1 << 16);
  const double one = kernel::estimate_time_ns(program, 8, 1, team);
  EXPECT_NEAR(kernel::estimate_time_ns(program, 8, 2, team), one / 2 + 1100, 1);
  EXPECT_NEAR(kernel::estimate_time_ns(program, 8, 3, team), one * 3 / 8 + 1100, 1) << "the worker with the most tiles";
  EXPECT_NEAR(kernel::estimate_time_ns(program, 1, 2, team), one / 8 + 1100, 1) << "one tile cannot be shared";
  EXPECT_EQ(kernel::best_num_workers(program, 8, 16, team), 8);
  EXPECT_EQ(kernel::best_num_workers(program, 1, 16, team), 1);
  EXPECT_EQ(kernel::best_num_workers(tiles(8, 16), 8, 16, team), 1) << "a few nanoseconds each";
}

TEST(Cost, WhatWorkersExchangeCounts) {
  kernel::Program program = tiles(2, 1 << 18);
  const double alone = kernel::estimate_time_ns(program, 2, 1);
  EXPECT_EQ(kernel::best_num_workers(program, 2, 2), 2);
  program.shared_bytes = static_cast<std::int64_t>(alone / kernel::TeamCost{}.shared_ns_per_byte);
  EXPECT_EQ(kernel::estimate_time_ns(program, 2, 1), alone) << "one worker has it in its own cache";
  EXPECT_EQ(kernel::best_num_workers(program, 2, 2), 1);
}

// Barriers in a loop are paid for in each iteration.
TEST(Cost, BarriersInLoopsCount) {
  kernel::Program program = tiles(2, 1 << 10);
  kernel::For loop;
  loop.counter = 0;
  loop.trip = {100, -1};
  loop.body = std::move(program.body);
  program.body.clear();
  program.body.push_back({std::move(loop)});
  const double one = kernel::estimate_time_ns(program, 2, 1);
  EXPECT_GT(kernel::estimate_time_ns(program, 2, 2, {.wake_ns = 0, .join_ns = one / 100, .shared_ns_per_byte = 0}),
            one);
  EXPECT_LT(kernel::estimate_time_ns(program, 2, 2, {.wake_ns = 0, .join_ns = one / 1000, .shared_ns_per_byte = 0}),
            one);
}

}  // namespace
}  // namespace hotloop
