// ThreadTeam: a fork-join team with wake-up latencies near a microsecond.
//
// A waiting worker spins for a bounded time, then sleeps in the kernel, so that back-to-back calls find it awake and
// an idle program costs nothing. A run allocates nothing and takes no lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace hotloop::runtime {

class ThreadTeam {
 public:
  using Task = void (*)(void* context, int worker);  // must not throw

  static constexpr int max_workers = 256;

  // The caller of try_run is worker 0; the team starts num_workers - 1 threads, or fewer where the system refuses one.
  explicit ThreadTeam(int num_workers);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Runs task(context, w) for w in 0..num_workers-1 and returns true when all have returned. Returns false, having run nothing, when the
  // team is in use (by another caller, or by a caller that is itself a worker) or too small, or when not all workers came within
  // `patience`: on a machine that does other work a worker may get a core after milliseconds, in which the caller is done alone.
  bool try_run(int num_workers, Task task, void* context, std::chrono::nanoseconds patience = no_limit);
  static constexpr auto no_limit = std::chrono::nanoseconds::max();

  // Joins the workers of the run in progress that have not returned yet. `team` is a ThreadTeam; the signature is what generated code calls.
  static void barrier(void* team);

  int num_workers() const { return num_workers_.load(std::memory_order_acquire); }
  // Makes the team this large, if it is smaller and the system has the threads. Runs may be in progress; another grow() may not.
  void grow(int num_workers);

 private:
  // One cache line a worker: the number of the last run it was called for.
  struct alignas(64) Slot {
    std::atomic<std::uint32_t> run{0};
    std::atomic<bool> asleep{false}, ends{false};
  };

  void work(int worker, std::uint32_t last);  // `last`: the run before the first it may be called for
  bool wait_for_call(Slot& slot, std::uint32_t last) const;
  void wake(int worker, std::uint32_t run);
  void end_last_thread(std::uint32_t next_run);
  bool gather(std::uint64_t others, std::chrono::nanoseconds patience);
  bool join(std::uint32_t run);
  bool open_if_complete(std::uint64_t state);
  void leave();

  std::unique_ptr<Slot[]> slots_;
  std::vector<std::thread> threads_;  // changed by grow() and the destructor only
  std::atomic<int> num_workers_{1};
  std::atomic<bool> oversubscribed_{false};  // more workers than cores: spinning would only delay the others

  alignas(64) std::atomic<bool> busy_{false};
  std::atomic<std::uint32_t> run_{0};  // the last one's number, written by the holder of busy_
  Task task_ = nullptr;  // this and the next: written by the holder of busy_, read by the workers that joined
  void* context_ = nullptr;

  // Number of the run << 32 | whether it goes on or was dropped | workers that have come, the caller aside.
  alignas(64) std::atomic<std::uint64_t> gate_{0};
  alignas(64) std::atomic<int> running_{0};  // workers of this run that have not returned, the caller aside
  alignas(64) std::atomic<std::uint64_t> gathering_{
      0};                                            // workers at the barrier << 32 | workers that have not returned
  alignas(64) std::atomic<std::uint32_t> phase_{0};  // the sense of the barrier: counts its openings
};

// The team that all executables share, at least `num_workers` large where the system starts so many threads; where it does not, it is
// asked again after a second. Never destroyed; a forked child process, which has none of the threads, gets a new one.
ThreadTeam& shared_team(int num_workers);

// Cores this process may use.
int num_cores();

}  // namespace hotloop::runtime
