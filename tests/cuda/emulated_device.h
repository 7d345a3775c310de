// A CUDA device that is not there: kernels as the CUDA renderer prints them, compiled as C++ by the system's compiler,
// each thread of each block a fiber. For tests on machines without a GPU. It is stricter than a GPU where that shows
// mistakes: memory is poisoned and guarded, threads run in an order that may be chosen, and meetings that not all
// threads come to are errors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "backends/cuda/device.h"

namespace hotloop::cuda {

// Of the threads that can run, which one does: what is written without a sync shows in one of these as a wrong result.
enum class ThreadOrder { Forward, Backward, Random };

// What a source has that lacks the part for real devices.
inline constexpr std::string_view without_a_device_part =
    "#ifndef HL_EMULATED\n#error \"this part is for devices\"\n#endif\n";

struct EmulatedOptions {
  int multiprocessors = 3;
  std::int64_t near_bytes = 64 << 10;  // of shared memory: for a block, and for all blocks on a multiprocessor
  int blocks_per_multiprocessor = 2;   // at most
  int blocks_of_worker = 16;           // at most, as it says
  int blocks_that_find_room = 16;      // side by side
  std::int64_t memory_bytes = std::int64_t{1} << 30;
  int capability = 90;
  ThreadOrder order = ThreadOrder::Random;
  std::uint64_t seed = 1;
  // The hl_meet of a launch, the first is 0, at which the emulator cancels the run, as late as it can be: odd workers
  // learn of it there, even ones at their next hl_meet. Negative: never.
  std::int64_t cancel_at_meet = -1;
  // Streams do their work when they are waited for or asked whether they are done: a missing wait shows as a wrong
  // result.
  bool deferred = false;
  // Memory of the device can be touched by copies and kernels only: a host that follows an Address ends in a fault.
  bool hidden_memory = true;
};

// What was done since the device was made.
struct EmulatedCounters {
  std::atomic<std::int64_t> compiles{0};  // of sources that this device had not compiled before
  std::atomic<std::int64_t> allocations{0}, launches{0}, copies_in{0}, copies_out{0}, fills{0}, waits{0};
  std::atomic<std::int64_t> bytes_in{0}, bytes_out{0};
  // hl_block_sync of a block, hl_sync and hl_any of a worker, hl_down of a group, hl_meet of all workers.
  std::atomic<std::int64_t> syncs{0}, anys{0}, downs{0}, meets{0};
};

// A kernel or its caller broke the contract: threads that do not meet, writes beside memory, addresses of nothing.
class EmulationError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

class EmulatedDevice : public Device {
 public:
  EmulatedCounters counters;
  // Changes count from the next launch on, those of `seed` not at all.
  EmulatedOptions options;
  virtual std::size_t bytes_in_use() = 0;  // allocated and not released
  virtual std::size_t pinned_bytes_in_use() = 0;
};

// Launches of all emulated devices of a process run one after the other; equal sources are compiled once a process.
std::unique_ptr<EmulatedDevice> make_emulated_device(const EmulatedOptions& options = {});

}  // namespace hotloop::cuda
