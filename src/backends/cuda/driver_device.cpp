#include "backends/cuda/driver_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "core/memory.h"
#include "hotloop/error.h"

namespace hotloop::cuda {
namespace {

// Generated code reads it by value.
static_assert(sizeof(KernelArguments) == 64);
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);  // as the driver has them

// The blocks of page-locked memory that the device has given away.
class PinnedBlocks {
 public:
  void insert(const void* at, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[static_cast<const char*>(at)] = bytes;
  }
  void erase(const void* at) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(static_cast<const char*>(at));
  }
  bool contains(const void* from, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const char* at = static_cast<const char*>(from);
    auto block = blocks_.upper_bound(at);
    if (block == blocks_.begin()) return false;
    --block;
    const auto offset = static_cast<std::size_t>(at - block->first);
    return offset < block->second && bytes <= block->second - offset;
  }

 private:
  std::mutex mutex_;
  std::map<const char*, std::size_t, std::less<>> blocks_;
};

class LoadedCode final : public Code {
 public:
  LoadedCode(const Context& context, const Image& image, int multiprocessors)
      : context_(context), multiprocessors_(multiprocessors) {
    const CurrentContext current(context_);
    context_.check(context_.driver.module_load_data(&module_, image.bytes.c_str()), "loading a kernel");
    const Result result = context_.driver.module_get_function(&function_, module_, "hotloop_kernel");
    if (result != 0) context_.driver.module_unload(module_);
    context_.check(result, "finding a kernel in its code");
    from_cache = image.from_cache;
    code_bytes = image.bytes.size();
  }
  ~LoadedCode() override {
    if (is_forked_from_use()) return;
    try {
      const CurrentContext current(context_);
      context_.driver.module_unload(module_);
    } catch (const std::exception&) {  // the driver has failed, or has ended before this object
    }
  }

  int workers_at_once(const LaunchShape& shape) override {
    const CurrentContext current(context_);
    int workers = 0;
    Result result = opt_in(shape.near_bytes);
    if (result == 0) result = allow_side_by_side(shape.blocks);
    if (result == 0 && shape.blocks > 1) {
      LaunchShape one = shape;
      one.workers = 1;
      const Clusters clusters(one, nullptr, false);
      result = context_.driver.occupancy_max_active_clusters(&workers, function_, &clusters.config);
    } else if (result == 0) {
      result = context_.driver.occupancy_max_active_blocks_per_multiprocessor(
          &workers, function_, shape.threads, static_cast<std::size_t>(shape.near_bytes));
      workers *= multiprocessors_;
    }
    // No device has so much of it, or this one has not so many side by side, whatever its capability says.
    if (result == invalid_value || result == invalid_cluster_size) return 0;
    context_.check(result, "counting the blocks that run at once");
    return workers;
  }

  void launch(DriverStream stream, const LaunchShape& shape, KernelArguments arguments) {
    context_.check(opt_in(shape.near_bytes), "asking for shared memory");
    void* parameters[] = {&arguments};  // copied before the driver returns
    if (shape.blocks > 1) {
      context_.check(allow_side_by_side(shape.blocks), "asking for blocks side by side");
      const Clusters clusters(shape, stream, true);
      context_.check(context_.driver.launch_kernel_ex(&clusters.config, function_, parameters, nullptr),
                     "launching a kernel");
      return;
    }
    context_.check(context_.driver.launch_cooperative_kernel(
                       function_, static_cast<unsigned>(shape.workers), 1, 1, static_cast<unsigned>(shape.threads), 1,
                       1, static_cast<unsigned>(shape.near_bytes), stream, parameters),
                   "launching a kernel");
  }

 private:
  // Workers of several blocks; `at_once`: all of them run at once.
  struct Clusters {
    Clusters(const LaunchShape& shape, DriverStream stream, bool at_once) {
      config.grid[0] = static_cast<unsigned>(shape.workers * shape.blocks);
      config.block[0] = static_cast<unsigned>(shape.threads);
      config.shared_bytes = static_cast<unsigned>(shape.near_bytes);
      config.stream = stream;
      config.attributes = attributes;
      config.num_attributes = at_once ? 2 : 1;
      attributes[0].id = LaunchAttributeId::ClusterDimension;
      attributes[0].cluster[0] = static_cast<unsigned>(shape.blocks);
      attributes[0].cluster[1] = attributes[0].cluster[2] = 1;
      attributes[1].id = LaunchAttributeId::Cooperative;
      attributes[1].cooperative = 1;
    }
    Clusters(const Clusters&) = delete;
    Clusters& operator=(const Clusters&) = delete;
    LaunchAttribute attributes[2];
    LaunchConfig config;
  };

  // More than 8 are to be asked for.
  Result allow_side_by_side(int blocks) {
    constexpr int without_asking = 8;
    if (blocks <= without_asking) return 0;
    const std::lock_guard lock(mutex_);
    return context_.driver.func_set_attribute(function_, FunctionAttribute::NonPortableClusterSizeAllowed, 1);
  }

  // More than 48 KiB is to be asked for; the most that anybody asked for stays, so that threads may launch with
  // different sizes.
  Result opt_in(std::int64_t near_bytes) {
    if (near_bytes <= granted_.load()) return 0;
    if (near_bytes > std::numeric_limits<int>::max()) return invalid_value;
    const std::lock_guard lock(mutex_);
    if (near_bytes <= granted_.load()) return 0;
    const Result result = context_.driver.func_set_attribute(function_, FunctionAttribute::MaxDynamicSharedSizeBytes,
                                                             static_cast<int>(near_bytes));
    if (result == 0) granted_.store(near_bytes);
    return result;
  }

  const Context& context_;
  const int multiprocessors_;
  DriverModule module_ = nullptr;
  DriverFunction function_ = nullptr;
  std::mutex mutex_;
  std::atomic<std::int64_t> granted_{0};
};

class OrderedStream final : public Stream {
 public:
  OrderedStream(const Context& context, PinnedBlocks& pinned) : context_(context), pinned_(pinned) {
    constexpr unsigned non_blocking = 1;  // not in turn with the default stream, which others may use
    const CurrentContext current(context_);
    context_.check(context_.driver.stream_create(&stream_, non_blocking), "making a stream");
  }
  ~OrderedStream() override {
    if (is_forked_from_use()) return;
    try {
      const CurrentContext current(context_);
      context_.driver.stream_synchronize(stream_);
      context_.driver.stream_destroy(stream_);
      if (staging_ != nullptr) context_.driver.mem_free_host(staging_);
    } catch (const std::exception&) {
    }
  }

  // The driver promises for page-locked memory alone when it reads. Where a device reads all memory of the host by
  // itself, even a copy from any other memory may still be going on when the call has returned.
  void copy_in(Address to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    const CurrentContext current(context_);
    const bool stays = pinned_.contains(from, bytes), staged = !stays && bytes <= staging_bytes;
    if (staged) from = stage(from, bytes);
    context_.check(context_.driver.memcpy_h_to_d_async(to, from, bytes, stream_), "copying to the device");
    if (!stays && !staged) synchronize();
  }
  void copy_out(void* to, Address from, std::size_t bytes) override {
    if (bytes == 0) return;
    const CurrentContext current(context_);
    context_.check(context_.driver.memcpy_d_to_h_async(to, from, bytes, stream_), "copying from the device");
  }
  void fill(Address at, unsigned char byte, std::size_t bytes) override {
    if (bytes == 0) return;
    const CurrentContext current(context_);
    context_.check(context_.driver.memset_d8_async(at, byte, bytes, stream_), "filling memory of the device");
  }
  // Only what this device has compiled.
  void launch(Code& code, const LaunchShape& shape, const KernelArguments& arguments) override {
    const CurrentContext current(context_);
    static_cast<LoadedCode&>(code).launch(stream_, shape, arguments);
  }
  bool is_done() override {
    const CurrentContext current(context_);
    const Result result = context_.driver.stream_query(stream_);
    if (result == not_ready) return false;
    context_.check(result, "what was launched");
    num_staged_ = 0;
    return true;
  }
  void wait() override {
    const CurrentContext current(context_);
    synchronize();
  }

 private:
  static constexpr std::size_t staging_bytes = std::size_t{256} << 10;

  void synchronize() {
    context_.check(context_.driver.stream_synchronize(stream_), "what was launched");
    num_staged_ = 0;
  }

  const void* stage(const void* from, std::size_t bytes) {
    if (staging_ == nullptr)
      context_.check(context_.driver.mem_host_alloc(&staging_, staging_bytes, 0), "page-locking memory of the host");
    if (bytes > staging_bytes - num_staged_) synchronize();
    void* at = static_cast<char*>(staging_) + num_staged_;
    std::memcpy(at, from, bytes);
    num_staged_ = std::min(staging_bytes, num_staged_ + (bytes + 63) / 64 * 64);
    return at;
  }

  const Context& context_;
  PinnedBlocks& pinned_;
  DriverStream stream_ = nullptr;
  void* staging_ = nullptr;
  std::size_t num_staged_ = 0;  // bytes that copies under way may still read
};

class DriverBackedDevice final : public Device {
 public:
  DriverBackedDevice(const Context& context, const Compiler& compiler, const DeviceInfo& info)
      : context_(context), compiler_(compiler), info_(info) {}

  const DeviceInfo& info() const override { return info_; }

  std::unique_ptr<Code> compile(const std::string& source, const CodeOptions& options) override {
    const auto start = std::chrono::steady_clock::now();
    const Image image = compiler_.compile(source, info_.capability, options);
    auto code = std::make_unique<LoadedCode>(context_, image, info_.multiprocessors);
    code->compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return code;
  }

  Address allocate(std::size_t bytes) override {
    const CurrentContext current(context_);
    Address at = 0;
    check_allocation(context_.driver.mem_alloc(&at, std::max<std::size_t>(bytes, 1)), bytes,
                     "of the memory of the device (" + info_.name + ", which has " +
                         bytes_text(static_cast<double>(info_.memory_bytes)) + ")");
    return at;
  }
  void release(Address at) noexcept override {
    if (at == 0 || is_forked_from_use()) return;
    try {
      const CurrentContext current(context_);
      context_.driver.mem_free(at);
    } catch (const std::exception&) {
    }
  }

  void* allocate_pinned(std::size_t bytes) override {
    const CurrentContext current(context_);
    void* at = nullptr;
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    check_allocation(context_.driver.mem_host_alloc(&at, size, 0), bytes, "of page-locked memory of the host");
    pinned_.insert(at, size);
    return at;
  }
  void release_pinned(void* at) noexcept override {
    if (at == nullptr || is_forked_from_use()) return;
    try {
      pinned_.erase(at);
      const CurrentContext current(context_);
      context_.driver.mem_free_host(at);
    } catch (const std::exception&) {
    }
  }

  std::unique_ptr<Stream> stream() override { return std::make_unique<OrderedStream>(context_, pinned_); }

 private:
  void check_allocation(Result result, std::size_t bytes, const std::string& of_what) const {
    if (result == out_of_memory)
      throw UserError("cuda", "needs " + bytes_text(static_cast<double>(bytes)) + " more " + of_what,
                      context_.driver.error_text(result), "smaller batches, or end what else uses the device");
    context_.check(result, "an allocation");
  }

  const Context context_;
  const Compiler compiler_;
  const DeviceInfo info_;
  PinnedBlocks pinned_;
};

}  // namespace

std::unique_ptr<Device> make_device(const Context& context, const Compiler& compiler, const DeviceInfo& info) {
  return std::make_unique<DriverBackedDevice>(context, compiler, info);
}

}  // namespace hotloop::cuda
