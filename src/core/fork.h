// Locks and forks. A child process has the forking thread alone: what another thread had locked stays locked there for ever.
#pragma once

namespace hotloop {

// While one lives, forks of other threads wait. Whoever takes a lock that the child of a fork may want (the library's global ones, those held
// while something is compiled, and LLVM's, which nobody else can reach) takes it inside of one: so no thread is between a lock and its
// release when a process is forked. This comes before any such lock, and inside nothing may wait for a thread that might be
// forking: nothing of Python's, no ForkableMutex, and no run of a program. A thread that forks inside, itself, does not wait; its child is to call exec.
//
// Those of one thread may be nested. Costs about 20 ns; different threads do not wait for each other, except while a fork waits.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
  bool is_outermost() const;  // of those of its thread, asked while it is the innermost
};

}  // namespace hotloop
