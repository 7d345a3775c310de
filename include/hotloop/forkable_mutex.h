// ForkableMutex: held while a function is traced and compiled.
#pragma once

#include <atomic>
#include <cstdint>

namespace hotloop::detail {

// A mutex that a forked child finds free, unless the thread that forked holds it: of other threads nobody is left there to release it. So what
// it guards must be whole at any time: changed by one atomic store, or inside a NoFork. It may be held for long, by what runs anybody's code;
// no NoFork may be around it. Those of one thread are released in reverse order.
class ForkableMutex {
 public:
  ForkableMutex() = default;
  ForkableMutex(const ForkableMutex&) = delete;
  ForkableMutex& operator=(const ForkableMutex&) = delete;
  void lock();
  bool try_lock();
  void unlock();

 private:
  friend struct HeldMutexes;
  std::atomic<std::uint32_t> holder_{0};  // the generation of the process whose thread holds it, from 1; 0: nobody does
  ForkableMutex* next_ = nullptr;         // of those that its thread holds
};

}  // namespace hotloop::detail
