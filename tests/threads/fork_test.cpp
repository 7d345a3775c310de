// Forks beside threads that compile.
#include "core/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "hotloop/hotloop.h"

namespace hotloop {
namespace {

constexpr auto a_moment = std::chrono::milliseconds(30);

// Forks; the child exits with 0 if `work` gives true, and is ended after some seconds if it hangs.
template <class Work> bool child_does(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(3);
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Fork, WaitsForOtherThreads) {
  std::atomic<bool> inside{false}, left{false};
  std::thread other([&] {
    const NoFork no_fork;
    inside = true;
    std::this_thread::sleep_for(a_moment);
    const NoFork within;  // while the fork waits
    left = true;
  });
  while (!inside) std::this_thread::yield();
  EXPECT_TRUE(child_does([&] { return left.load(); }));
  EXPECT_TRUE(left);
  other.join();
}

TEST(Fork, DoesNotWaitForItsOwnThread) {
  const NoFork no_fork;
  EXPECT_TRUE(child_does([] {
    const NoFork within;
    return true;
  }));
}

TEST(Fork, AThreadThatComesWhileAForkWaitsGoesOnAfterIt) {
  std::optional<NoFork> mine(std::in_place);
  std::atomic<bool> entered{false};
  std::thread forking([] { EXPECT_TRUE(child_does([] { return true; })); });
  std::this_thread::sleep_for(a_moment);
  std::thread late([&] {
    const NoFork no_fork;
    entered = true;
  });
  std::this_thread::sleep_for(a_moment);
  mine.reset();
  forking.join();
  late.join();
  EXPECT_TRUE(entered);
}

#if !defined(__SANITIZE_THREAD__)  // tsan does not follow threads into a fork

// A program that was never compiled before.
bool compiles_and_runs(double number, const char* dispatch = "fused") {
  CompileOptions options;
  options.threads = 2;
  options.dispatch = dispatch;
  const Jit f = jit([=](std::span<const Value> v) { return std::vector<Value>{tanh(v[0] * number) + v[0]}; }, options);
  return f({Array::zeros(DType::F32, {64})})[0].at(0) == 0;
}

TEST(Fork, TheChildCompilesWhileAnotherThreadDoes) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int t = 0; t < 2; ++t)
    others.emplace_back([&stop, t] {
      for (int i = 0; !stop; ++i) EXPECT_TRUE(compiles_and_runs(1000 * t + i + 0.5));
    });
  for (int i = 0; i < 45; ++i) {
    if (child_does([&] { return compiles_and_runs(-1 - i); })) continue;
    ADD_FAILURE() << "child " << i;
    break;
  }
  stop = true;
  for (std::thread& t : others) t.join();
}

#endif

}  // namespace
}  // namespace hotloop
