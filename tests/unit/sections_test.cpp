// Sections of kernel IR: what runs at once, what the verifier refuses, and that any number of workers gives the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "hotloop/error.h"
#include "llvm_backend.h"
#include "schedule/cost.h"
#include "schedule/footprint.h"
#include "schedule/memory_plan.h"
#include "schedule/sections.h"

namespace hotloop::kernel {
namespace {

constexpr std::int64_t num_steps = 10, chunk_steps = 3;
constexpr std::int64_t num_elements = num_steps + 2;  // one before the first step and one after the last

// Two recurrences, each over the outputs of the one before: y[t] = s = x[t] + s / 2, step by step.
struct Chain {
  Program program;
  Sections& sections() { return std::get<Sections>(program.body[2].node); }
  Access& read_of(std::size_t section) { return body_of(section).instrs[3].access; }
  Access& carry_of(std::size_t section) { return body_of(section).instrs[0].access; }
  Map& body_of(std::size_t section) {
    return std::get<Map>(std::get<For>(sections().sections[section].body[0].node).body[0].node);
  }
};

Chain chain(bool reverse, int num_sections = 2) {
  ProgramBuilder builder(target_named("portable"));
  int input = builder.argument(f32, num_elements);
  Sections all;
  all.trip = num_steps;
  all.chunk = chunk_steps;
  all.reverse = reverse;
  Single start;
  for (int i = 0; i < num_sections; ++i) {
    const int output = i + 1 == num_sections ? builder.result(f32, num_elements) : builder.shared(f32, num_elements);
    const int carry = builder.shared(f32, 1);
    MapBuilder zero({}, 0, -1);
    zero.store(f32, at(carry), zero.constant(0.0F));
    start.body.push_back({zero.build()});
    Section section;
    section.delay = i;
    section.first = builder.var("first");
    section.steps = builder.var("steps");
    For loop;
    loop.counter = builder.var("t");
    loop.trip = {chunk_steps, section.steps};
    loop.reverse = reverse;
    const Affine t = Affine::of(section.first) + Affine::of(loop.counter) + Affine(1);
    MapBuilder step({}, 0, -1);
    const int old = step.load(f32, at(carry)), factor = step.constant(0.5F);
    const int half = step.op(ScalarOp::Mul, f32, old, factor);
    const int in = step.load(f32, at(input, t));
    const int sum = step.op(ScalarOp::Add, f32, in, half);
    step.store(f32, at(carry), sum);
    step.store(f32, at(output, t), sum);
    loop.body.push_back({step.build()});
    section.body.push_back({loop});
    all.sections.push_back(section);
    input = output;
  }
  builder.add(start);
  builder.add(Barrier{});
  builder.add(all);
  builder.add(Barrier{});
  return {builder.build()};
}

TEST(Sections, FollowOneAnotherByChunks) {
  std::mt19937 random(1);
  const std::vector<Array> x = {random_values(f32, num_elements, random)};
  for (const bool reverse : {false, true})
    for (const int num_sections : {1, 2, 3, 5}) {
      const Program program = chain(reverse, num_sections).program;
      verify(program);
      std::vector<Array> expected = {Array::zeros(f32, Shape{num_elements})};
      Reference(program, x, expected, 1).run();
      const auto kernel = compile_llvm(program);
      for (const int workers : {1, 2, 3, 4}) {
        std::vector<Array> result = {Array::zeros(f32, Shape{num_elements})};
        run_kernel(program, kernel->function(), x, result, 1, workers);
        EXPECT_EQ(std::memcmp(result[0].raw(), expected[0].raw(), result[0].bytes()), 0)
            << num_sections << " sections, " << workers << " workers" << (reverse ? ", reverse" : "");
      }
    }
}

void expect_refused(const std::string& rule, bool reverse, const std::function<void(Chain&)>& damage) {
  Chain c = chain(reverse);
  verify(c.program);
  damage(c);
  try {
    verify(c.program);
    ADD_FAILURE() << "must be refused: " << rule;
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(rule), std::string::npos) << e.what();
  }
}

TEST(Sections, MustNotRace) {
  for (const bool reverse : {false, true}) {
    expect_refused("must not share what one of them writes", reverse,
                   [](Chain& c) { c.sections().sections[1].delay = 0; });
    // One step further in the order of time than the section before has come.
    expect_refused("that the one before it has not done", reverse,
                   [&](Chain& c) { c.read_of(1).index = c.read_of(1).index + Affine(reverse ? -1 : 1); });
    // A fixed place, such as the carry of the other.
    expect_refused("that the one before it has not done", reverse, [](Chain& c) { c.read_of(1) = c.carry_of(0); });
    expect_refused("must not share the memory of", reverse, [](Chain& c) {
      const int a = c.carry_of(0).buffer, b = c.carry_of(1).buffer;
      c.program.buffers[static_cast<std::size_t>(b)].offset = c.program.buffers[static_cast<std::size_t>(a)].offset;
    });
    expect_refused("in an arena that others have too", reverse, [](Chain& c) {
      Buffer& carry = c.program.buffers[static_cast<std::size_t>(c.carry_of(0).buffer)];
      carry.space = Space::Worker;
      carry.offset = 0;
      c.program.worker_bytes = 64;
    });
    expect_refused("has a first step", reverse, [](Chain& c) {
      c.sections().chunk = num_steps;
      for (Section& s : c.sections().sections) {
        s.delay = 0;
        std::get<For>(s.body[0].node).trip.bound = num_steps;
      }
    });
    expect_refused("must not stand in", reverse, [](Chain& c) {
      Single around;
      around.body.push_back(c.program.body[2]);
      c.program.body[2] = {around};
    });
  }
}

// In the order of time an earlier row is done, whatever the chunk.
TEST(Sections, MayLookBack) {
  for (const bool reverse : {false, true}) {
    Chain c = chain(reverse);
    c.read_of(1).index = c.read_of(1).index + Affine(reverse ? 1 : -1);
    EXPECT_EQ(broken_rule(c.program, c.sections()), std::nullopt);
  }
}

Touch touch(std::int64_t constant, std::vector<std::pair<std::int64_t, std::int64_t>> steps, bool writes = true) {
  return {.buffer = 0, .writes = writes, .base = constant, .steps = std::move(steps)};
}

TEST(Footprint, TellsPlacesApart) {
  EXPECT_TRUE(may_meet(touch(0, {{1, 8}}), touch(7, {{1, 8}})));
  EXPECT_FALSE(may_meet(touch(0, {{1, 8}}), touch(8, {{1, 8}})));
  EXPECT_FALSE(may_meet(touch(7, {{-1, 8}}), touch(8, {{1, 8}}))) << "from the last to the first";
  // Columns 0..3 and 4..7 of rows of 8, as two directions write them.
  EXPECT_FALSE(may_meet(touch(0, {{8, 10}, {1, 4}}), touch(4, {{8, 10}, {1, 4}})));
  EXPECT_TRUE(may_meet(touch(0, {{8, 10}, {1, 5}}), touch(4, {{8, 10}, {1, 4}})));
  EXPECT_TRUE(may_meet(touch(6, {{8, 10}, {1, 4}}), touch(0, {{8, 10}, {1, 2}}))) << "over the end of a row";
  EXPECT_FALSE(may_meet(touch(0, {{1, 8}, {1, 0}}), touch(0, {{1, 8}}))) << "nothing is touched";
  Touch computed = touch(0, {});
  computed.anywhere = true;
  EXPECT_TRUE(may_meet(computed, touch(100, {})));
  EXPECT_FALSE(conflict(touch(0, {}, false), touch(0, {}, false))) << "both read";
}

// Sections run at once: their buffers lie apart though no statement touches both.
TEST(MemoryPlan, KnowsThatSectionsRunAtOnce) {
  ProgramBuilder builder(target_named("portable"));
  const int x = builder.argument(f32, 64), before = builder.shared(f32, 64);
  Sections all;
  const auto copy = [&](int from, int to) {
    const Var i = builder.var("i");
    MapBuilder map({{i, {64, -1}}}, 1, 0);
    map.store(f32, at(to, Affine::of(i)), map.load(f32, at(from, Affine::of(i))));
    return Stmt{map.build()};
  };
  builder.add(Single{{copy(x, before)}});
  builder.add(Barrier{});
  std::vector<int> own, second;
  for (int s = 0; s < 2; ++s) {
    own.push_back(builder.shared(f32, 64));
    second.push_back(builder.shared(f32, 64));
    Section section;
    section.body = {copy(before, own.back()), copy(own.back(), second.back()),
                    copy(second.back(), builder.result(f32, 64))};
    all.sections.push_back(section);
  }
  builder.add(all);
  builder.add(Barrier{});
  Program program = builder.build();
  plan_memory(program);
  verify(program);
  const auto offset = [&](int b) { return program.buffers[static_cast<std::size_t>(b)].offset; };
  for (const int a : {own[0], second[0]})
    for (const int b : {own[1], second[1]}) EXPECT_NE(offset(a), offset(b));
  for (const int b : {own[0], second[0], own[1], second[1]}) EXPECT_NE(offset(b), offset(before)) << "read by both";
  EXPECT_EQ(program.shared_bytes, 5 * 256);
}

TEST(Cost, SectionsOfARoundRunAtOnce) {
  const TeamCost team{.wake_ns = 1000, .join_ns = 100, .shared_ns_per_byte = 0, .passed_ns_per_byte = 0};
  const Program program = chain(false, 2).program;
  const double alone = estimate_time_ns(program, 1, 1, team), two = estimate_time_ns(program, 1, 2, team);
  const double start = estimate_ns(program, {program.body[0]}), chunk = (alone - start) / 8;
  EXPECT_NEAR(two, start + 5 * chunk + 1000 + 6 * 100, 1e-6)
      << "four chunks, one round behind; a join a round and two around";
}

// What ends a loop outside all workers read, each on its own.
TEST(Cost, AFlagThatEndsALoopPassesToAll) {
  TeamCost team{.wake_ns = 0, .join_ns = 0, .shared_ns_per_byte = 0, .passed_ns_per_byte = 1000};
  const auto passing_ns = [&](const Program& program) {
    TeamCost free = team;
    free.passed_ns_per_byte = 0;
    return estimate_time_ns(program, 1, 2, team) - estimate_time_ns(program, 1, 2, free);
  };
  Program program = chain(false, 2).program;
  Buffer flag;
  flag.dtype = DType::Bool;
  flag.elements = 1;
  flag.space = Space::Shared;
  const int stop = program.add_buffer(flag);
  For loop{.counter = program.new_var("t"), .trip = {4, -1}};
  MapBuilder never({}, 0, -1);
  never.store(DType::Bool, at(stop), never.constant(false));
  loop.test = {{Single{{{never.build()}}}}, {Barrier{}}};
  program.body.push_back({loop});
  const double unread = passing_ns(program);
  std::get<For>(program.body.back().node).stop = at(stop);
  EXPECT_NEAR(passing_ns(program) - unread, 500, 1e-6) << "the byte that one of two did not write himself";
}

}  // namespace
}  // namespace hotloop::kernel
