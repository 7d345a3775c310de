// Forks beside threads that compile.
#include "core/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "hotloop/hotloop.h"
#include "runtime/lowering.h"

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

// Forks while another thread makes `work` call is_there(). The child makes it do that too.
class ForkAmidst {
 public:
  void is_there() {
    there_ = true;
    while (!go_) std::this_thread::yield();
  }
  // Whether `work`, which gives true in the other thread, does so in the child.
  template <class Work> bool child_does_too(Work work) {
    bool other_did = false;
    std::thread other([&] { other_did = work(); });
    while (!there_) std::this_thread::yield();
    const bool done = child_does([&] {
      go_ = true;
      return work();
    });
    go_ = true;
    other.join();
    return done && other_did;
  }

 private:
  std::atomic<bool> there_{false}, go_{false};
};

const Array ones = Array::full(DType::F32, {3}, 1);

TEST(Fork, TheChildTracesWhatAnotherThreadIsTracing) {
  ForkAmidst amidst;
  const Jit f = jit([&](std::span<const Value> v) {
    amidst.is_there();
    return std::vector<Value>{v[0] * 2.0};
  });
  EXPECT_TRUE(amidst.child_does_too([&] { return f({ones})[0].at(0) == 2; }));
}

TEST(Fork, TheChildTracesAFunctionOfStructuresThatAnotherThreadIsTracing) {
  ForkAmidst amidst;
  const auto f = jit([&](const Value& x) {
    amidst.is_there();
    return x * 2.0;
  });
  EXPECT_TRUE(amidst.child_does_too([&] { return f(ones).at(0) == 2; }));
}

TEST(Fork, TheChildTracesARuleThatAnotherThreadIsTracing) {
  ForkAmidst amidst;
  const LazyGraph rule(
      [&](std::span<const Value> v) {
        amidst.is_there();
        return std::vector<Value>{v[0] * 2.0};
      },
      {ones.type()}, "rule");
  EXPECT_TRUE(amidst.child_does_too([&] { return rule.get()->outputs().size() == 1 && rule.is_traced(); }));
}

TEST(Fork, TheChildKeepsWhatItsOwnThreadHolds) {
  detail::ForkableMutex outer, inner;
  const std::scoped_lock first(outer);
  const std::scoped_lock second(inner);
  EXPECT_TRUE(child_does([&] {
    std::atomic<int> num_taken{0};
    std::vector<std::thread> others;
    for (detail::ForkableMutex* m : {&outer, &inner})
      others.emplace_back([&num_taken, m] {
        const std::scoped_lock lock(*m);
        ++num_taken;
      });
    std::this_thread::sleep_for(a_moment);
    const bool kept = num_taken == 0;
    inner.unlock();
    outer.unlock();
    for (std::thread& t : others) t.join();
    return kept && num_taken == 2;
  }));
}

TEST(Fork, WaitsForWhatIsLoweredWhenSomebodyAsks) {
  std::atomic<int> num_made{0};
  runtime::LoweredLater later([&] {
    ++num_made;
    std::this_thread::sleep_for(a_moment);
    return runtime::Lowered{};
  });
  std::thread other([&] { later.get(); });
  while (num_made == 0) std::this_thread::yield();
  EXPECT_TRUE(child_does([&] {
    later.get();
    return num_made == 1;
  }));
  other.join();
}

#endif

}  // namespace
}  // namespace hotloop
