#include "core/fork.h"

#include <pthread.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <utility>

#include "hotloop/forkable_mutex.h"

namespace hotloop {
namespace detail {

// Those that this thread holds, the last one first.
struct HeldMutexes {
  static thread_local ForkableMutex* last;
  static void take_along(std::uint32_t generation) {
    for (ForkableMutex* m = last; m != nullptr; m = m->next_) m->holder_.store(generation);
  }
};
thread_local ForkableMutex* HeldMutexes::last = nullptr;

}  // namespace detail

namespace {

// Atomics and no mutex: the child sets them as they are for its one thread.
std::atomic<int> g_inside{0};  // threads
std::atomic<int> g_forks{0};   // that wait or are under way
thread_local int num_no_forks = 0;

std::atomic<std::uint32_t> g_generation{1};  // of this process: one more than its parent's

void leave() {
  g_inside.fetch_sub(1);
  if (g_forks.load() > 0) g_inside.notify_all();
}

void before_fork() {
  g_forks.fetch_add(1);
  if (num_no_forks > 0) return;
  for (int inside = g_inside.load(); inside > 0; inside = g_inside.load()) g_inside.wait(inside);
}

void after_fork() {
  g_forks.fetch_sub(1);
  g_forks.notify_all();
}

void in_child() {
  g_forks.store(0);
  g_inside.store(num_no_forks > 0 ? 1 : 0);
  detail::HeldMutexes::take_along(++g_generation);
}

// At the start, since the C library may hold a lock of its own while forks wait.
[[maybe_unused]] const int registered = pthread_atfork(before_fork, after_fork, in_child);

}  // namespace

NoFork::NoFork() {
  if (num_no_forks++ > 0) return;
  while (true) {
    for (int forks = g_forks.load(); forks > 0; forks = g_forks.load()) g_forks.wait(forks);
    // Either this thread sees the fork now, or the fork sees this thread.
    g_inside.fetch_add(1);
    if (g_forks.load() == 0) return;
    leave();
  }
}

bool NoFork::is_outermost() const { return num_no_forks == 1; }

NoFork::~NoFork() {
  if (--num_no_forks == 0) leave();
}

void detail::ForkableMutex::lock() {
  assert(num_no_forks == 0);
  const std::uint32_t generation = g_generation.load();
  while (true) {
    std::uint32_t holder = holder_.load();
    // A thread of a parent is not here.
    if (holder != generation && holder_.compare_exchange_strong(holder, generation)) break;
    if (holder == generation) holder_.wait(holder);
  }
  next_ = std::exchange(HeldMutexes::last, this);
}

bool detail::ForkableMutex::try_lock() {
  assert(num_no_forks == 0);
  const std::uint32_t generation = g_generation.load();
  std::uint32_t holder = holder_.load();
  if (holder == generation || !holder_.compare_exchange_strong(holder, generation)) return false;
  next_ = std::exchange(HeldMutexes::last, this);
  return true;
}

void detail::ForkableMutex::unlock() {
  assert(HeldMutexes::last == this);
  HeldMutexes::last = next_;
  holder_.store(0);
  holder_.notify_one();
}

}  // namespace hotloop
