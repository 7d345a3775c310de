// The threads of a launch, each a fiber: which one runs, and what they do when they meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/device.h"
#include "cuda/emulated_device.h"
#include "cuda/emulated_part.h"
#include "cuda/fibers.h"

namespace hotloop::cuda::emulated {

enum class State { Ready, BlockSync, Sync, Any, Down, Meet, Done };

// Of a thread, on its way.
struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  std::int64_t group;
};

struct Fiber {
  Context context{};
  State state = State::Ready;
  int worker = 0, thread = 0;
  int line = 0;              // of the text, where it waits
  int delta = 0, width = 0;  // of hl_down
  std::uint64_t value = 0;   // what it brought to a meeting, then what it gets
  std::uint32_t* barrier = nullptr;
  const volatile std::int32_t* cancel = nullptr;
  std::vector<Copy> copies;
  std::int64_t copies_begun = 0;  // groups of them
};

// One launch at a time.
class Machine {
 public:
  void run(Part& part, KernelFunction kernel, const LaunchShape& shape, const KernelArguments& arguments,
           const EmulatedOptions& options, std::mt19937_64& random, EmulatedCounters& counters);

  // Called by fibers, on their stacks: nothing but a few words and the switch.
  static Fiber& current() { return *active->current_; }
  static void give_way() { switch_context(active->current_->context, active->scheduler_); }
  static Machine* active;

 private:
  static void fiber_main() {
    active->kernel_(*active->arguments_);
    current().state = State::Done;
    give_way();
    std::abort();  // what has returned never runs again
  }

  void make_ready(Fiber& fiber);
  void settle(Fiber& fiber);
  void settle_group(Fiber& fiber);
  void settle_block(Fiber& fiber);
  void settle_worker(int worker);
  void expect_together(const Fiber* first, int count) const;
  void settle_meeting();
  void leave_meeting(int worker, bool cancelled);
  bool release_cancelled();
  std::string report() const;
  Fiber* of_worker(int worker) { return fibers_.data() + static_cast<std::ptrdiff_t>(worker) * threads_; }
  std::size_t block_of(const Fiber& fiber) const {  // of all workers' blocks
    return static_cast<std::size_t>(&fiber - fibers_.data()) / static_cast<std::size_t>(block_threads_);
  }

  Context scheduler_{};
  Fiber* current_ = nullptr;
  KernelFunction kernel_ = nullptr;
  const KernelArguments* arguments_ = nullptr;
  const EmulatedOptions* options_ = nullptr;
  std::mt19937_64* random_ = nullptr;
  EmulatedCounters* counters_ = nullptr;
  int workers_ = 0, threads_ = 0, block_threads_ = 0;  // threads: of a worker
  std::vector<Fiber> fibers_;                          // worker by worker, block by block
  std::vector<int> waiting_;                           // a worker: threads at hl_sync, hl_any or hl_meet
  std::vector<int> waiting_in_block_;                  // a block: threads at hl_block_sync
  std::vector<bool> at_meet_;                          // a worker: all of it is
  int num_at_meet_ = 0;
  std::int64_t meets_ = 0;
  using Entry = std::pair<std::int64_t, Fiber*>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;
  Stacks stacks_;
};

}  // namespace hotloop::cuda::emulated
