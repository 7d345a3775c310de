#include "runtime/thread_team.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include "hotloop/error.h"
#include "hotloop/hotloop.h"
#include "threads/refused_threads.h"

namespace hotloop::runtime {
namespace {

using testing::RefusedThreads;

template <class F> bool run(ThreadTeam& team, int n, F fn) {
  return team.try_run(
      n, [](void* f, int worker) { (*static_cast<F*>(f))(worker); }, &fn);
}

TEST(ThreadTeam, EveryWorkerRunsOnceARun) {
  ThreadTeam team(4);
  std::array<int, 4> counts{};  // plain: the join must order them
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(run(team, 4, [&](int w) { ++counts[static_cast<std::size_t>(w)]; }));
  for (int c : counts) EXPECT_EQ(c, 1000);
}

TEST(ThreadTeam, FewerWorkersThanTheTeamHas) {
  ThreadTeam team(4);
  for (int n = 1; n <= 4; ++n) {
    std::array<int, 4> ran{};
    ASSERT_TRUE(run(team, n, [&](int w) { ran[static_cast<std::size_t>(w)] = 1; }));
    EXPECT_EQ(std::accumulate(ran.begin(), ran.end(), 0), n);
  }
}

TEST(ThreadTeam, TooFewWorkersRunsNothing) {
  ThreadTeam team(2);
  bool ran = false;
  EXPECT_FALSE(run(team, 3, [&](int) { ran = true; }));
  EXPECT_FALSE(ran);
}

// A run that not all came for was run by nobody, and late workers never run another's task.
TEST(ThreadTeam, ARunIsByAllOrByNobody) {
  ThreadTeam team(3);
  std::array<int, 3> counts{};
  int runs = 0;
  for (int i = 0; i < 5000; ++i) {
    const int workers = 2 + i % 2;
    std::atomic<int> ran{0};
    const auto task = [&](int w) {
      ++counts[static_cast<std::size_t>(w)];
      ThreadTeam::barrier(&team);
      ++ran;
    };
    auto copy = task;
    const bool done = team.try_run(
        workers, [](void* f, int worker) { (*static_cast<decltype(copy)*>(f))(worker); }, &copy,
        std::chrono::microseconds(i % 7));
    ASSERT_EQ(ran.load(), done ? workers : 0);
    runs += done;
  }
  EXPECT_EQ(counts[0], runs);
  EXPECT_EQ(counts[1], runs);
  EXPECT_TRUE(run(team, 3, [](int) {}));  // with all the patience there is, they come
}

TEST(ThreadTeam, AWorkerThatReturnsIsNotWaitedFor) {
  constexpr int workers = 3;
  ThreadTeam team(workers);
  for (int repeat = 0; repeat < 300; ++repeat) {
    std::atomic<int> passed{0};
    ASSERT_TRUE(run(team, workers, [&](int w) {
      for (int phase = 0; phase < w * 5 + repeat % 3; ++phase) {  // each leaves earlier than the next one
        ThreadTeam::barrier(&team);
        ++passed;
      }
    }));
    EXPECT_EQ(passed.load(), 15 + 3 * (repeat % 3));
  }
}

TEST(ThreadTeam, BarrierSeparatesPhases) {
  constexpr int workers = 3, phases = 200;
  ThreadTeam team(workers);
  std::array<std::array<int, 16>, workers> slots{};  // written by one worker, read by its neighbour after the barrier
  std::atomic<int> errors{0};
  for (int repeat = 0; repeat < 5; ++repeat)
    ASSERT_TRUE(run(team, workers, [&](int w) {
      for (int phase = 1; phase <= phases; ++phase) {
        slots[static_cast<std::size_t>(w)][0] = phase;
        ThreadTeam::barrier(&team);
        if (slots[static_cast<std::size_t>((w + 1) % workers)][0] != phase) ++errors;
        ThreadTeam::barrier(&team);
      }
    }));
  EXPECT_EQ(errors.load(), 0);
}

TEST(ThreadTeam, BusyTeamRefusesASecondCallerAndItself) {
  ThreadTeam team(2);
  bool nested = true, other = true;
  ASSERT_TRUE(run(team, 2, [&](int w) {
    if (w == 0) nested = run(team, 2, [](int) {});
    if (w == 1) std::thread([&] { other = run(team, 1, [](int) {}); }).join();
  }));
  EXPECT_FALSE(nested);
  EXPECT_FALSE(other);
  EXPECT_TRUE(run(team, 2, [](int) {}));
}

TEST(ThreadTeam, SleepingWorkersWake) {
  ThreadTeam team(3);
  for (int i = 0; i < 5; ++i) {
    std::atomic<int> ran{0};
    ASSERT_TRUE(run(team, 3, [&](int) { ++ran; }));
    EXPECT_EQ(ran.load(), 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
}

TEST(ThreadTeam, ManyCallersOneAtATime) {
  ThreadTeam team(2);
  int inside = 0;  // plain: only the holder of the team touches it
  std::atomic<int> accepted{0}, refused{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const bool ok = run(team, 2, [&](int w) {
          if (w == 0) ++inside;
        });
        ++(ok ? accepted : refused);
      }
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(accepted + refused, 800);
  EXPECT_EQ(inside, accepted.load());
}

TEST(ThreadTeam, Grows) {
  ThreadTeam team(1);
  ASSERT_TRUE(run(team, 1, [](int) {}));
  team.grow(3);
  std::atomic<int> ran{0};
  ASSERT_TRUE(run(team, 3, [&](int) { ++ran; }));
  EXPECT_EQ(ran.load(), 3);
  EXPECT_THROW(team.grow(100000), UserError);
  EXPECT_TRUE(run(team, 3, [](int) {}));
}

TEST(ThreadTeam, GrowsWhileItRuns) {
  ThreadTeam team(2);
  std::atomic<bool> grown{false};
  ASSERT_TRUE(run(team, 2, [&](int w) {
    if (w == 1) team.grow(4);
    if (w == 1) grown = true;
    while (!grown) std::this_thread::yield();
  }));
  std::atomic<int> ran{0};
  ASSERT_TRUE(run(team, 4, [&](int) { ++ran; }));
  EXPECT_EQ(ran.load(), 4);
}

// Where the system refuses a thread, half of those that it started are left to the rest of the program.
TEST(ThreadTeam, HasTheThreadsThatTheSystemStarts) {
  std::optional<RefusedThreads> refused(std::in_place, 4);
  ThreadTeam team(8);
  EXPECT_EQ(team.num_workers(), 3);
  std::atomic<int> ran{0};
  ASSERT_TRUE(run(team, 3, [&](int) { ++ran; }));
  EXPECT_EQ(ran.load(), 3);
  refused.emplace(2);
  team.grow(8);
  EXPECT_EQ(team.num_workers(), 3);
  EXPECT_FALSE(run(team, 4, [](int) {}));
  ASSERT_TRUE(run(team, 3, [](int) {}));
  refused.reset();
  team.grow(8);
  EXPECT_EQ(team.num_workers(), 8);
  EXPECT_TRUE(run(team, 8, [](int) {}));
}

TEST(ThreadTeam, HasNoThreadsIfTheSystemStartsNone) {
  const RefusedThreads refused(0);
  ThreadTeam team(3);
  EXPECT_EQ(team.num_workers(), 1);
  EXPECT_TRUE(run(team, 1, [](int) {}));
}

TEST(ThreadTeam, SharedTeamIsOneAndGrows) {
  ThreadTeam& a = shared_team(2);
  ThreadTeam& b = shared_team(3);
  EXPECT_EQ(&a, &b);
  EXPECT_GE(b.num_workers(), 3);
}

// Results are those of one thread, and whoever was refused does not ask anew in each call.
TEST(ThreadTeam, CallsRunOnTheThreadsThereAre) {
  const std::vector<Array> arguments = {nn::uniform(1, {300, 40}, DType::F32, -1, 1),
                                        nn::uniform(2, {40, 24}, DType::F32, -1, 1)};
  const auto program = [](std::span<const Value> v) {
    return std::vector<Value>{reduce_sum(tanh(matmul(v[0], v[1])), {0})};
  };
  CompileOptions options;
  options.threads = 1;
  const std::vector<Array> want = jit(program, options)(arguments);
  const auto gives_the_same = [&](const Jit& f) {
    const std::vector<Array> got = f(arguments);
    return std::memcmp(got[0].raw(), want[0].raw(), want[0].bytes()) == 0;
  };
  const RefusedThreads refused(1);
  options.threads = shared_team(1).num_workers() + 3;
  const Jit few = jit(program, options);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(gives_the_same(few));
  EXPECT_EQ(RefusedThreads::num_refused(), 1);
}

#if !defined(__SANITIZE_THREAD__)  // tsan does not follow threads into a fork
TEST(ThreadTeam, AForkedChildGetsItsOwnTeam) {
  ASSERT_TRUE(run(shared_team(2), 2, [](int) {}));
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> ran{0};
    const bool ok = run(shared_team(2), 2, [&](int) { ++ran; });
    _exit(ok && ran == 2 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

}  // namespace
}  // namespace hotloop::runtime
