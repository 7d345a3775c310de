// Carries that are computed elsewhere change places instead of being copied home in every step.
#include "schedule/change_places.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "hotloop/functions.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "kernel_builder.h"
#include "passes/pipeline.h"
#include "schedule/accesses.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

Value spread(Value u) {
  const auto rolled = [&](std::int64_t by) {
    const std::int64_t n = u.shape()[0], cut = by > 0 ? n - by : -by;
    return concat({narrow(u, 0, cut, n - cut), narrow(u, 0, 0, cut)}, 0);
  };
  return rolled(1) + rolled(-1) - 2.0 * u;
}

struct Loops {
  std::vector<std::int64_t> trips;
  std::vector<int> copies;  // maps of loads and stores alone, of each
};

Loops loops_of(const ScanBody& step, std::size_t num_carries, std::int64_t length, std::int64_t points,
               int num_workers = 1) {
  const auto f = [&](Values in) {
    ScanOptions options;
    options.length = length;
    return scan(step, in, {}, options).first;
  };
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  options.num_workers = num_workers;
  const std::vector<ValueType> types(num_carries, ValueType{DType::F32, {points}});
  const kernel::Program program = schedule(*passes::optimize(*trace(f, types), {}), options);
  kernel::verify(program);
  Loops loops;
  kernel::for_each_statement(program.body, [&](const auto& statement) {
    if constexpr (std::is_same_v<std::decay_t<decltype(statement)>, kernel::For>) {
      loops.trips.push_back(statement.trip.bound);
      loops.copies.push_back(0);
      kernel::for_each_statement(statement.body, [&](const auto& inside) {
        if constexpr (std::is_same_v<std::decay_t<decltype(inside)>, kernel::Map>)
          loops.copies.back() += std::ranges::all_of(inside.instrs, [](const kernel::Instr& in) {
            return in.kind == kernel::Instr::Kind::Load || in.kind == kernel::Instr::Kind::Store;
          });
      });
    }
  });
  return loops;
}

using Carries = std::vector<Value>;
const ScanBody diffusion = [](Values c, Values) { return std::pair(Carries{c[0] + 0.1 * spread(c[0])}, Carries{}); };
const ScanBody leapfrog = [](Values c, Values) {
  return std::pair(Carries{2.0 * c[0] - c[1] + 0.1 * spread(c[0]), c[0]}, Carries{});
};

TEST(ChangePlaces, OneCarryTakesTurnsWithWhatIsComputed) {
  for (const int num_workers : {1, 2}) {
    const Loops loops = loops_of(diffusion, 1, 100, 2000, num_workers);
    EXPECT_EQ(loops.trips, std::vector<std::int64_t>{50});
    EXPECT_EQ(loops.copies, std::vector<int>{0});
  }
}

TEST(ChangePlaces, StepsLeftOverAreCopiedHome) {
  const Loops loops = loops_of(diffusion, 1, 101, 2000);
  EXPECT_EQ(loops.trips, (std::vector<std::int64_t>{50, 1}));
  EXPECT_EQ(loops.copies, (std::vector<int>{0, 1}));
}

TEST(ChangePlaces, TwoCarriesAndWhatIsComputedGoRound) {
  const Loops loops = loops_of(leapfrog, 2, 100, 2000);
  EXPECT_EQ(loops.trips, (std::vector<std::int64_t>{33, 1}));
  EXPECT_EQ(loops.copies, (std::vector<int>{0, 1}));
}

// Backwards it has as many steps as it took, a number that is read beside the loop: each turn reads its own.
TEST(ChangePlaces, TurnsHaveLoopsThatEndByThemselves) {
  const Function grown = [](Values in) {
    const Value one = constant(1, DType::F32);
    return while_loop([](Values x) { return less(x[0], 10.0); },
                      [&](Values x) { return std::vector{x[0] * (1.0 + square(in[0]))}; }, {&one, 1}, 20);
  };
  const ScanBody step = [&](Values c, Values) {
    const Value at = mean(c[0]);
    return std::pair(Carries{c[0] + 0.1 * grad(grown, {0})({&at, 1})[0] * spread(c[0])}, Carries{});
  };
  for (const int num_workers : {1, 2}) {
    const Loops loops = loops_of(step, 1, 100, 2000, num_workers);
    ASSERT_FALSE(loops.trips.empty());
    EXPECT_EQ(loops.trips[0], 50);
  }
}

// A few numbers are copied sooner than code is written out; and so is a loop that is stopped, whose last step is any.
TEST(ChangePlaces, OthersAreCopied) {
  EXPECT_EQ(loops_of(diffusion, 1, 100, 400).trips, std::vector<std::int64_t>{100});
  EXPECT_EQ(loops_of(diffusion, 1, 3, 2000).trips, std::vector<std::int64_t>{3});
  const ScanBody twice = [](Values c, Values) {  // both get the same
    const Value next = c[0] + spread(c[1]);
    return std::pair(Carries{next, next}, Carries{});
  };
  EXPECT_EQ(loops_of(twice, 2, 100, 2000).trips, std::vector<std::int64_t>{100});
}

// What is computed lies in a result, where the caller looks for the last step's.
TEST(ChangePlaces, ResultsStayWhereTheyAre) {
  using kernel::Affine;
  constexpr std::int64_t points = 1024;
  for (const bool to_result : {false, true}) {
    kernel::ProgramBuilder p(kernel::target_named("avx512"));
    const int carry = p.shared(DType::F32, points), last = p.result(DType::F32, points);
    const int next = to_result ? p.result(DType::F32, points) : p.shared(DType::F32, points);
    const auto copy = [&](int to, int from, bool backwards) {
      const kernel::Var i = p.var("i");
      kernel::MapBuilder m({{i, {points, -1}}}, 1, 0);
      const Affine place = backwards ? Affine::of(i, -1) + Affine(points - 1) : Affine::of(i);
      m.store(DType::F32, kernel::at(to, Affine::of(i)), m.load(DType::F32, kernel::at(from, place)));
      return m.build();
    };
    kernel::For loop;
    loop.counter = p.var("step");
    loop.trip = {10, -1};
    loop.body.push_back({copy(next, carry, true)});
    loop.body.push_back({copy(carry, next, false)});
    p.add(std::move(loop));
    p.add(copy(last, carry, false));
    kernel::Program program = p.build();
    kernel::change_places(program);
    EXPECT_EQ(std::get<kernel::For>(program.body[0].node).trip.bound, to_result ? 10 : 5);
  }
}

}  // namespace
}  // namespace hotloop
