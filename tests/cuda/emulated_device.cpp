#include "cuda/emulated_device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/compiler.h"
#include "core/denormals.h"
#include "cuda/emulated_compiler.h"
#include "cuda/emulated_machine.h"
#include "cuda/emulated_memory.h"
#include "cuda/guarded.h"

namespace hotloop::cuda {
namespace {

using emulated::compile_once;
using emulated::Loaded;
using emulated::Machine;
using emulated::Memory;
using emulated::round_up;

// The vendor's compiler refuses some of what one for C++ takes. It needs no GPU: where HOTLOOP_NVRTC names it, it is asked as well.
void ask_nvrtc(const std::string& source, int capability, bool flush_denormals) {
  static const std::optional<Compiler> compiler = [] {
    std::optional<Compiler> found;
    if (std::getenv("HOTLOOP_NVRTC") == nullptr) return found;
    std::string why;
    const auto nvrtc = open_nvrtc(std::numeric_limits<int>::max(), why);
    if (!nvrtc) throw std::runtime_error(why);
    found.emplace(*nvrtc);
    return found;
  }();
  if (compiler) compiler->compile(source, capability, {.flush_denormals = flush_denormals});
}

// Of the process: their parts and stacks are used by one launch at a time.
std::mutex launches_mutex;

class EmulatedCode : public Code {
 public:
  EmulatedCode(std::shared_ptr<Loaded> loaded, const EmulatedOptions& options, bool flushes_denormals)
      : flushes_denormals(flushes_denormals), loaded_(std::move(loaded)), options_(options) {}
  int workers_at_once(const LaunchShape& shape) override {
    const auto [_, blocks, threads, near_bytes] = shape;
    if (threads < 1 || threads > 1024 || near_bytes < 0 || near_bytes > options_.near_bytes) return 0;
    if (blocks < 1 || blocks > options_.blocks_of_worker || blocks > options_.blocks_that_find_room ||
        (blocks & (blocks - 1)) != 0)
      return 0;
    const std::int64_t by_threads = 2048 / threads;
    const std::int64_t by_near = near_bytes == 0 ? by_threads : options_.near_bytes / near_bytes;
    const std::int64_t at_once = std::min({by_threads, by_near, std::int64_t{options_.blocks_per_multiprocessor}});
    return static_cast<int>(at_once * options_.multiprocessors / blocks);
  }
  const std::shared_ptr<Loaded>& loaded() const { return loaded_; }
  const bool flushes_denormals;

 private:
  std::shared_ptr<Loaded> loaded_;
  EmulatedOptions options_;
};

class TheDevice;

class EmulatedStream : public Stream {
 public:
  explicit EmulatedStream(TheDevice& device) : device_(device) {}
  ~EmulatedStream() override;
  void copy_in(Address to, const void* from, std::size_t bytes) override;
  void copy_out(void* to, Address from, std::size_t bytes) override;
  void fill(Address at, unsigned char byte, std::size_t bytes) override;
  void launch(Code& code, const LaunchShape& shape, const KernelArguments& arguments) override;
  bool is_done() override;
  void wait() override;

 private:
  void perform(std::function<void()> work);
  void perform_first();
  void finish();
  TheDevice& device_;
  std::deque<std::function<void()>> later_;
};

class TheDevice : public EmulatedDevice {
 public:
  explicit TheDevice(const EmulatedOptions& chosen) : memory(chosen), random_(chosen.seed) {
    options = chosen;
    info_.name = "emulated";
    info_.capability = chosen.capability;
    info_.multiprocessors = chosen.multiprocessors;
    info_.near_bytes = chosen.near_bytes;
    info_.blocks_of_worker = chosen.blocks_of_worker;
    info_.memory_bytes = chosen.memory_bytes;
    info_.versions = "emulated by the system's C++ compiler";
  }
  const DeviceInfo& info() const override { return info_; }

  std::unique_ptr<Code> compile(const std::string& source, const CodeOptions& how) override {
    const auto start = std::chrono::steady_clock::now();
    auto code = std::make_unique<EmulatedCode>(compile_once(source), options, how.flush_denormals);
    code->compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    code->code_bytes = code->loaded()->code_bytes;
    {
      const std::lock_guard lock(mutex_);
      code->from_cache = !compiled_.insert(code->loaded().get()).second;
      if (!code->from_cache) ++counters.compiles;
    }
    if (!code->from_cache && source.find(without_a_device_part) == std::string::npos)
      ask_nvrtc(source, info_.capability, how.flush_denormals);
    return code;
  }

  Address allocate(std::size_t bytes) override {
    ++counters.allocations;
    return memory.allocate(bytes);
  }
  void release(Address at) noexcept override {
    if (at != 0) memory.release(at);
  }
  void* allocate_pinned(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    void* at = std::aligned_alloc(256, round_up(std::max<std::size_t>(bytes, 1), 256));
    if (at == nullptr) throw std::bad_alloc();
    std::memset(at, 0xff, bytes);
    pinned_.emplace(static_cast<unsigned char*>(at), bytes);
    return at;
  }
  void release_pinned(void* at) noexcept override {
    if (at == nullptr) return;
    const std::lock_guard lock(mutex_);
    if (pinned_.erase(static_cast<unsigned char*>(at)) == 0) {
      std::fprintf(stderr, "emulated device: pinned memory at %p is released, which is not allocated\n", at);
      std::abort();
    }
    std::free(at);
  }
  std::unique_ptr<Stream> stream() override { return std::make_unique<EmulatedStream>(*this); }

  std::size_t bytes_in_use() override { return memory.in_use(); }
  std::size_t pinned_bytes_in_use() override {
    const std::lock_guard lock(mutex_);
    std::size_t bytes = 0;
    for (const auto& [at, size] : pinned_) bytes += size;
    return bytes;
  }

  bool is_pinned(const void* from, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* at = static_cast<const unsigned char*>(from);
    auto found = pinned_.upper_bound(const_cast<unsigned char*>(at));
    return found != pinned_.begin() && (--found, at + bytes <= found->first + found->second);
  }

  void run(const Loaded& loaded, const LaunchShape& shape, const KernelArguments& arguments) {
    static Machine machine;
    const std::lock_guard lock(launches_mutex);
    const Memory::Use use(memory);
    ++counters.launches;
    machine.run(*loaded.part, loaded.kernel, shape, arguments, options, random_, counters);
    memory.check_guards();
  }

  Memory memory;

 private:
  DeviceInfo info_;
  std::mutex mutex_;
  std::set<const Loaded*> compiled_;
  std::map<unsigned char*, std::size_t> pinned_;
  std::mt19937_64 random_;
};

EmulatedStream::~EmulatedStream() {
  try {
    finish();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "emulated device: in a stream that ends: %s\n", error.what());
    std::abort();
  }
}

void EmulatedStream::perform(std::function<void()> work) {
  later_.push_back(std::move(work));
  if (!device_.options.deferred) finish();
}

void EmulatedStream::perform_first() {
  const std::function<void()> work = std::move(later_.front());
  later_.pop_front();
  work();
}

void EmulatedStream::finish() {
  while (!later_.empty()) perform_first();
}

void EmulatedStream::copy_in(Address to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  device_.memory.check(to, bytes, "a copy in");
  ++device_.counters.copies_in;
  device_.counters.bytes_in += static_cast<std::int64_t>(bytes);
  const auto copy = [this, to, bytes](const void* source) {
    const Memory::Use use(device_.memory, to, bytes, "a copy in");
    std::memcpy(reinterpret_cast<void*>(to), source, bytes);
  };
  if (!device_.options.deferred || device_.is_pinned(from, bytes)) {
    perform([copy, from] { copy(from); });
    return;
  }
  const auto* first = static_cast<const unsigned char*>(from);
  perform([copy, kept = std::vector<unsigned char>(first, first + bytes)] { copy(kept.data()); });
}

void EmulatedStream::copy_out(void* to, Address from, std::size_t bytes) {
  if (bytes == 0) return;
  device_.memory.check(from, bytes, "a copy out");
  ++device_.counters.copies_out;
  device_.counters.bytes_out += static_cast<std::int64_t>(bytes);
  perform([this, to, from, bytes] {
    const Memory::Use use(device_.memory, from, bytes, "a copy out");
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  });
}

void EmulatedStream::fill(Address at, unsigned char byte, std::size_t bytes) {
  if (bytes == 0) return;
  device_.memory.check(at, bytes, "a fill");
  ++device_.counters.fills;
  perform([this, at, byte, bytes] {
    const Memory::Use use(device_.memory, at, bytes, "a fill");
    std::memset(reinterpret_cast<void*>(at), byte, bytes);
  });
}

void EmulatedStream::launch(Code& code, const LaunchShape& shape, const KernelArguments& arguments) {
  auto& emulated = dynamic_cast<EmulatedCode&>(code);
  const std::shared_ptr<Loaded> loaded = emulated.loaded();
  if (shape.threads != loaded->threads || shape.blocks != loaded->blocks) {
    throw EmulationError("a launch with " + std::to_string(shape.blocks) + " blocks of " +
                         std::to_string(shape.threads) + " threads a worker, of a kernel for " +
                         std::to_string(loaded->blocks) + " of " + std::to_string(loaded->threads));
  }
  const int at_once = emulated.workers_at_once(shape);
  if (shape.workers < 1 || shape.workers > at_once) {
    throw EmulationError("a launch of " + std::to_string(shape.workers) + " workers, of which " +
                         std::to_string(at_once) + " run at once");
  }
  perform([this, loaded, shape, arguments, flushes_denormals = emulated.flushes_denormals] {
    const DenormalsAsZero mode(flushes_denormals);  // f64 as well, which a device leaves as it is
    device_.run(*loaded, shape, arguments);
  });
}

bool EmulatedStream::is_done() {
  if (!later_.empty()) perform_first();
  return later_.empty();
}

void EmulatedStream::wait() {
  ++device_.counters.waits;
  finish();
}

}  // namespace

std::unique_ptr<EmulatedDevice> make_emulated_device(const EmulatedOptions& options) {
  return std::make_unique<TheDevice>(options);
}

}  // namespace hotloop::cuda
