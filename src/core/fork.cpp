#include "core/fork.h"

#include <pthread.h>

#include <atomic>

namespace hotloop {
namespace {

// Atomics and no mutex: the child sets them as they are for its one thread.
std::atomic<int> g_inside{0};  // threads
std::atomic<int> g_forks{0};   // that wait or are under way
thread_local int num_no_forks = 0;

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

}  // namespace hotloop
