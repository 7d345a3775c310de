// A CUDA device: memory, code and launches, through the driver that is found at run time. Nothing of a vendor is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace hotloop::cuda {

using Address = std::uint64_t;  // in the memory of a device; 0: none

struct DeviceInfo {
  std::string name;    // as its maker calls it
  int capability = 0;  // compute capability, 10 * major + minor
  int multiprocessors = 1;
  std::int64_t near_bytes = 0;  // of shared memory that a block may take at most
  int blocks_of_worker = 1;  // at most, a power of two: blocks side by side that store into each other's shared memory
  std::int64_t memory_bytes = 0;
  std::string versions;  // of the driver and the compiler, for people and for keys of caches
};

// A program on the device: `extern "C" __global__ void hotloop_kernel(KernelArguments)`.
struct KernelArguments {
  Address arguments = 0, results = 0;  // tables of addresses, one an input, one an output
  Address shared = 0, scratch = 0;     // arenas: of all workers; of each worker, one after the other
  std::int64_t scratch_stride = 0;     // bytes from one worker's to the next one's
  std::int64_t rows = 0;
  Address cancel = 0;   // an int32: nonzero ends the run early
  Address barrier = 0;  // two uint32, zero before the first launch: where workers meet
};

// What runs: workers, each a block of threads or a few blocks side by side. Code is compiled for so many blocks and threads.
struct LaunchShape {
  int workers = 1;
  int blocks = 1;               // of a worker
  int threads = 256;            // of a block
  std::int64_t near_bytes = 0;  // of shared memory, of a block
};

class Code {
 public:
  virtual ~Code() = default;
  // How many workers of this shape run at once on the device; 0: none does.
  virtual int workers_at_once(const LaunchShape& shape) = 0;
  double compile_ms = 0;
  bool from_cache = false;
  std::size_t code_bytes = 0;
};

// What is done in turn, beside what other streams do. For one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void copy_in(Address to, const void* from,
                       std::size_t bytes) = 0;  // `from` is read before this returns, or pinned
  virtual void copy_out(void* to, Address from, std::size_t bytes) = 0;  // there when wait() has returned
  virtual void fill(Address at, unsigned char byte, std::size_t bytes) = 0;
  // All workers run at once: they may wait for one another.
  virtual void launch(Code& code, const LaunchShape& shape, const KernelArguments& arguments) = 0;
  virtual bool is_done() = 0;  // without waiting
  virtual void wait() = 0;
};

struct CodeOptions {
  std::string cache_dir = {};  // one that exists; empty: no disk cache
  std::int64_t cache_bytes = 0;
  bool flush_denormals = false;  // of f32; f64 has no such mode
};

// Thread-safe. Functions throw UserError where memory or the driver's patience ends, with what the driver says.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual std::unique_ptr<Code> compile(const std::string& source, const CodeOptions& options) = 0;
  virtual Address allocate(std::size_t bytes) = 0;  // aligned to 256 bytes
  virtual void release(Address at) noexcept = 0;
  // Memory of the host that copies fully overlap with: page-locked.
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* at) noexcept = 0;
  virtual std::unique_ptr<Stream> stream() = 0;
};

// The first device of this machine; null where there is none, or no driver, or no run-time compiler: `why` then says what is missing, in
// words for people. Found once.
Device* find_device(std::string* why = nullptr);

// What find_device() would say, without looking for a device: other words where it may be another one. For keys of what was made for one.
std::string device_key();

// For tests: what find_device() gives from now on; null: what the machine has.
void set_device(Device* device);

}  // namespace hotloop::cuda
