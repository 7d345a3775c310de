// What stands between two barriers: which barriers are taken out, what the verifier refuses, and packs that workers share.
#include "schedule/phases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "hotloop/error.h"
#include "hotloop/hotloop.h"
#include "llvm_backend.h"
#include "runtime/lowering.h"
#include "schedule/memory_plan.h"

namespace hotloop::kernel {
namespace {

constexpr std::int64_t n = 64;

// Copies element by element, each statement followed by a barrier, as levels give them.
struct Copies {
  ProgramBuilder builder{target_named("portable")};
  Program program;
  Stmt copy(int from, int to, bool split) {
    const Var i = builder.var("i");
    MapBuilder map({{i, {n, -1}}}, 1, 0);
    map.store(f32, at(to, Affine::of(i)), map.load(f32, at(from, Affine::of(i))));
    return {map.build(split)};
  }
  void split(int from, int to) { append(copy(from, to, true)); }
  void single(int from, int to) { append({Single{{copy(from, to, false)}}}); }
  void append(Stmt stmt) {
    body.push_back(std::move(stmt));
    body.push_back({Barrier{}});
  }
  Program& build() {
    program = builder.build();
    program.body = body;
    return program;
  }
  Block body;
};

std::int64_t num_barriers(const Block& block) {
  return std::ranges::count_if(block, [](const Stmt& s) { return std::holds_alternative<Barrier>(s.node); });
}

TEST(Phases, HoldWhatSharesNothing) {
  Copies c;
  const int x = c.builder.argument(f32, n), a = c.builder.shared(f32, n), b = c.builder.shared(f32, n),
            d = c.builder.shared(f32, n), e = c.builder.shared(f32, n);
  c.single(x, a);
  c.split(x, b);
  c.single(x, d);                         // joins the first
  c.single(d, e);                         // one worker runs both
  c.split(b, c.builder.result(f32, n));   // what others wrote
  c.single(a, c.builder.result(f32, n));  // written before the barrier
  c.split(e, c.builder.result(f32, n));   // likewise
  Program& program = c.build();
  join_phases(program);
  EXPECT_EQ(num_barriers(program.body), 2) << print(program);
  EXPECT_EQ(program.body.size(), 7u) << print(program);
  plan_memory(program);
  verify(program);
}

// Workers leave a loop and pass its condition one by one; nothing in its body is joined that was apart before they met.
TEST(Phases, OfALoopBeginAfterABarrier) {
  Copies c;
  const int x = c.builder.argument(f32, n), a = c.builder.shared(f32, n);
  c.split(x, a);
  c.split(x, c.builder.result(f32, n));
  c.split(x, c.builder.result(f32, n));
  Program& program = c.build();
  For loop;
  loop.counter = program.new_var("t");
  loop.trip = {2, -1};
  loop.body = program.body;
  program.body = {{loop}};
  join_phases(program);
  EXPECT_EQ(num_barriers(std::get<For>(program.body[0].node).body), 2) << print(program);
}

// A buffer of one statement must not lie where another, which runs at the same time, still reads or already writes.
TEST(Phases, KeepTheirBuffersApart) {
  Copies c;
  const int x = c.builder.argument(f32, n), before = c.builder.shared(f32, n), own = c.builder.shared(f32, n),
            after = c.builder.shared(f32, n);
  c.split(x, before);
  c.split(before, c.builder.result(f32, n));  // the last to read it
  c.append({Single{{c.copy(x, own, false), c.copy(own, c.builder.result(f32, n), false)}}});
  c.split(x, after);
  c.split(after, c.builder.result(f32, n));
  Program& program = c.build();
  join_phases(program);
  plan_memory(program);
  verify(program);
  EXPECT_EQ(num_barriers(program.body), 3) << print(program);
  const auto offset = [&](int b) { return program.buffers[static_cast<std::size_t>(b)].offset; };
  EXPECT_NE(offset(before), offset(own));
  EXPECT_NE(offset(before), offset(after));
  EXPECT_NE(offset(own), offset(after));
  program.buffers[static_cast<std::size_t>(own)].offset = offset(before);
  EXPECT_THROW(verify(program), InternalError) << "the same memory at the same time";
}

// Each worker reads on its own way how many steps a loop takes. Where that is none, they do not meet in it: what comes next must not lie there.
TEST(Phases, OfALoopThatMayTakeNoStepEndNothing) {
  Copies c;
  const int x = c.builder.argument(f32, n), steps = c.builder.argument(i32, n), count = c.builder.shared(i32, n),
            inside = c.builder.shared(f32, n), after = c.builder.shared(f32, n);
  const Var trip = c.builder.var("trip");
  const auto at_once = [&](int from, int to) { return Block{c.copy(from, to, true), {Barrier{}}}; };
  const Var i = c.builder.var("i");
  MapBuilder counted({{i, {n, -1}}}, 1, 0);
  counted.store(i32, at(count, Affine::of(i)), counted.load(i32, at(steps, Affine::of(i))));
  c.append({Single{{Stmt{counted.build()}}}});
  c.body.push_back({Let{.var = trip, .source = at(count, 0), .low = 0, .high = 3}});
  For loop{.counter = c.builder.var("t"), .trip = {3, trip}};
  loop.body = at_once(x, inside);
  append(loop.body, at_once(inside, c.builder.result(f32, n)));
  c.body.push_back({loop});
  c.split(x, after);
  c.split(after, c.builder.result(f32, n));
  c.split(inside, c.builder.result(f32, n));  // has kept its own memory till now
  Program& program = c.build();
  plan_memory(program);
  verify(program);
}

TEST(Phases, MustNotRace) {
  Copies c;
  const int x = c.builder.argument(f32, n), a = c.builder.shared(f32, n);
  c.split(x, a);
  c.single(a, c.builder.result(f32, n));
  Program& program = c.build();
  verify(program);
  program.body.erase(program.body.begin() + 1);  // the barrier between them
  EXPECT_THROW(verify(program), InternalError);
}

class SplitPacks : public LlvmBackend {};

// Panels are the same whoever makes them, also where there are fewer than workers, and a last one that is narrower.
TEST_P(SplitPacks, CoverEveryPanel) {
  std::mt19937 random(1);
  constexpr std::int64_t k = 5;
  for (const std::int64_t columns : {1, 40, 64, 130, 320})
    for (const bool transposed : {false, true}) {
      ProgramBuilder builder(target());
      const std::int64_t padded = (columns + 15) / 16 * 16;
      Pack pack;
      pack.source = at(builder.argument(f32, k * columns));
      pack.k_stride = transposed ? 1 : columns;
      pack.n_stride = transposed ? k : 1;
      pack.k = k;
      pack.n = columns;
      pack.panel = transposed ? lanes_of(f32) : target().panel(f32);
      pack.target = builder.shared(f32, k * padded);
      pack.split = true;
      builder.add(pack);
      builder.add(Barrier{});
      const Var i = builder.var("i");
      MapBuilder out({{i, {k * padded, -1}}}, 1, 0);
      out.store(f32, at(builder.result(f32, k * padded), Affine::of(i)), out.load(f32, at(pack.target, Affine::of(i))));
      builder.add(out.build(true));
      const Program program = builder.build();
      const std::vector<Array> x = {random_values(f32, k * columns, random)};
      std::vector<Array> expected = {Array::zeros(f32, Shape{k * padded})};
      Reference(program, x, expected, 1).run();
      for (const bool in_c : {false, true}) {
        const auto kernel = in_c ? compile_c(program) : compile_llvm(program);
        for (const int workers : {1, 2, 3, 7}) {
          std::vector<Array> got = {Array::zeros(f32, Shape{k * padded})};
          run_kernel(program, kernel->function(), x, got, 1, workers);
          EXPECT_EQ(std::memcmp(got[0].raw(), expected[0].raw(), got[0].bytes()), 0)
              << columns << " columns, " << workers << " workers" << (in_c ? ", C" : "");
        }
      }
    }
}
INSTANTIATE_TEST_SUITE_P(Targets, SplitPacks, testing::ValuesIn(hotloop::kernel::native_targets));

Program training_step(const char* target, int threads, std::int64_t hidden, std::int64_t rows) {
  const nn::Sequential model(nn::LSTM(8, hidden, {.num_layers = 2}), nn::Last(), nn::Linear(hidden, 1));
  const Tree<Array> params = model.init(0);
  const optim::Adam adam(1e-3);
  const train::Step step = train::train_step(model, losses::MSE(), adam, params, adam.init(params),
                                             {DType::F32, {rows, 60, 8}}, {DType::F32, {rows, 1}});
  CompileOptions options;
  options.threads = threads;
  options.target = target;
  return runtime::lower(*step.graph(), options, kernel::target_named(options.target)).program;
}

// Of a training step whose weights are large, one worker alone makes nothing large; and workers meet a handful of times. Small weights are one
// panel where panels are wide, which is not packed.
TEST(Phases, OfATrainingStepAreFewAndShared) {
  for (const auto& [target, most_of_small] : {std::pair("avx512", 5), {"avx2", 6}}) {
    SCOPED_TRACE(target);
    const Program program = training_step(target, 2, 96, 32);
    std::int64_t split_packs = 0;
    for (const Stmt& stmt : program.body) {
      if (const auto* pack = std::get_if<Pack>(&stmt.node)) split_packs += pack->split;
      const auto* single = std::get_if<Single>(&stmt.node);
      if (single == nullptr) continue;
      for (const Stmt& inner : single->body) {
        if (const auto* pack = std::get_if<Pack>(&inner.node)) EXPECT_LT(pack->k * pack->n, 1 << 14);
        std::int64_t points = 1;
        if (const auto* map = std::get_if<Map>(&inner.node))
          for (const Dim& d : map->dims) points *= d.extent.bound;
        EXPECT_LT(points, 1 << 14) << print(program);
      }
    }
    EXPECT_EQ(split_packs, 5) << "the weights of two layers forwards but those of 8 inputs, and of both backwards";
    EXPECT_LE(num_barriers(program.body), 6) << print(program);
    EXPECT_LE(num_barriers(training_step(target, 2, 8, 32).body), most_of_small);
  }
}

}  // namespace
}  // namespace hotloop::kernel
