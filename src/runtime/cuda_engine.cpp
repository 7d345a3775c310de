#include "runtime/cuda_engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "backends/cuda/side_by_side.h"
#include "backends/render/cuda_c.h"
#include "core/cancel.h"
#include "core/fork.h"
#include "hotloop/error.h"
#include "runtime/history.h"
#include "runtime/kernel_record.h"
#include "runtime/pool.h"
#include "schedule/accesses.h"

namespace hotloop::runtime {
namespace {

using cuda::Address;

std::size_t round_up(std::size_t n) { return (n + 255) / 256 * 256; }

class DeviceMemory {
 public:
  DeviceMemory(cuda::Device& device, std::size_t bytes)
      : device_(device), at_(device.allocate(std::max<std::size_t>(bytes, 256))) {}
  ~DeviceMemory() { device_.release(at_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  Address at() const { return at_; }

 private:
  cuda::Device& device_;
  Address at_;
};

class PinnedMemory {
 public:
  PinnedMemory(cuda::Device& device, std::size_t bytes)
      : device_(device), at_(static_cast<std::byte*>(device.allocate_pinned(std::max<std::size_t>(bytes, 64)))) {}
  ~PinnedMemory() { device_.release_pinned(at_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* at() const { return at_; }

 private:
  cuda::Device& device_;
  std::byte* at_;
};

// Arrays side by side on the device: small ones go and come together, by way of page-locked memory.
struct Places {
  static constexpr std::size_t small = 64 << 10;
  std::vector<std::size_t> offsets, bytes;  // each with all rows
  std::vector<bool> has_rows;
  std::size_t small_bytes = 0, total = 0;  // small ones lie first

  Places(const std::vector<ValueType>& types, std::vector<bool> rows)
      : offsets(types.size()), has_rows(std::move(rows)) {
    for (const ValueType& t : types) bytes.push_back(t.bytes());
    for (const bool small_ones : {true, false}) {
      for (std::size_t i = 0; i < types.size(); ++i) {
        if ((bytes[i] <= small) != small_ones) continue;
        offsets[i] = total;
        total += round_up(bytes[i]);
      }
      if (small_ones) small_bytes = total;
    }
  }
  bool is_small(std::size_t i) const { return bytes[i] <= small; }
  std::size_t bytes_of(std::size_t i, std::int64_t rows, std::int64_t max_rows) const {
    if (!has_rows[i] || max_rows == 0) return bytes[i];
    return bytes[i] / static_cast<std::size_t>(max_rows) * static_cast<std::size_t>(rows);
  }
};

// What one call in progress has on the device.
struct Context {
  Context(cuda::Device& device, const kernel::Program& program, const Places& inputs, const Places& outputs,
          int workers)
      : stride(round_up(static_cast<std::size_t>(program.worker_bytes))),
        arena(device,
              round_up(static_cast<std::size_t>(program.shared_bytes)) + stride * static_cast<std::size_t>(workers)),
        arrays(device, inputs.total + outputs.total),
        tables(device, (inputs.offsets.size() + outputs.offsets.size()) * sizeof(Address)),
        words(device, 256),
        staged(device, std::max(inputs.small_bytes, outputs.small_bytes)),
        stream(device.stream()),
        messages(device.stream()) {
    const std::size_t shared = round_up(static_cast<std::size_t>(program.shared_bytes));
    // All ones is a NaN: a schedule that reads what it never wrote is seen at once.
    stream->fill(arena.at(), 0xff, shared + stride * static_cast<std::size_t>(workers));
    std::vector<Address> addresses;
    for (const std::size_t offset : inputs.offsets) addresses.push_back(arrays.at() + offset);
    for (const std::size_t offset : outputs.offsets) addresses.push_back(arrays.at() + inputs.total + offset);
    stream->copy_in(tables.at(), addresses.data(), addresses.size() * sizeof(Address));
    clear_words();
    arguments.arguments = tables.at();
    arguments.results = tables.at() + inputs.offsets.size() * sizeof(Address);
    arguments.shared = arena.at();
    arguments.scratch = arena.at() + shared;
    arguments.scratch_stride = static_cast<std::int64_t>(stride);
    arguments.cancel = words.at();
    arguments.barrier = words.at() + 64;
  }
  void clear_words() { stream->fill(words.at(), 0, 256); }
  Address input(const Places& places, std::size_t i) const { return arrays.at() + places.offsets[i]; }
  Address output(const Places& inputs, const Places& outputs, std::size_t i) const {
    return arrays.at() + inputs.total + outputs.offsets[i];
  }

  std::size_t stride;
  DeviceMemory arena, arrays, tables, words;
  PinnedMemory staged;
  std::unique_ptr<cuda::Stream> stream, messages;  // the second: what goes to a kernel that runs
  cuda::KernelArguments arguments;
};

// All engines, which keep what their calls had on a device for the next ones. Where memory ends, what no call uses is given back.
class Keepers {
 public:
  using GiveBack = std::function<void()>;
  static Keepers& all() {
    static Keepers& keepers = *new Keepers;  // engines may outlive what is destroyed at the end of a program
    return keepers;
  }
  void insert(const void* who, GiveBack give_back) {
    const NoFork no_fork;
    const std::lock_guard lock(mutex_);
    keepers_.emplace(who, std::move(give_back));
  }
  void erase(const void* who) {
    const NoFork no_fork;
    const std::lock_guard lock(mutex_);
    keepers_.erase(who);
  }
  void give_back() {
    const NoFork no_fork;
    const std::lock_guard lock(mutex_);
    for (const auto& [who, give_back] : keepers_) give_back();
  }

 private:
  std::mutex mutex_;
  std::map<const void*, GiveBack> keepers_;
};

// How many workers have something to do.
std::int64_t workers_with_work(const kernel::Program& program) {
  std::int64_t workers = std::max<std::int64_t>(kernel::num_tile_blocks(program), 1);
  kernel::for_each_statement(program.body, [&](const auto& s) {
    using T = std::decay_t<decltype(s)>;
    if constexpr (std::is_same_v<T, kernel::Map> || std::is_same_v<T, kernel::Pack>)
      if (s.split) workers = std::max(workers, program.target.blocks_worth_having);
  });
  return workers;
}

class CudaEngine final : public Engine {
 public:
  CudaEngine(kernel::Program program, cuda::Device& device, const BackendOptions& options, RowsOf rows, bool fixed_rows)
      : program_(std::move(program)),
        device_(device),
        inputs_(program_.arguments, std::move(rows.inputs)),
        outputs_(program_.results, std::move(rows.outputs)),
        fixed_rows_(fixed_rows) {
    // How many workers of several blocks run at once depends on where multiprocessors lie: fewer blocks where not all workers do that have rows.
    const std::int64_t wanted =
        cuda::side_by_side().always ? 1 : std::max<std::int64_t>(kernel::num_tile_blocks(program_), 1);
    int at_once = 0;
    for (int most = cuda::most_side_by_side; most >= 1; most = shape_.blocks / 2) {
      shape_.blocks = cuda::choose_blocks(program_, program_.max_rows, device.info(), most);
      at_once = compile(options);
      if (at_once >= wanted) break;
    }
    if (at_once < 1)
      throw UserError("cuda",
                      "a multiprocessor must have room for a block of " + std::to_string(shape_.threads) +
                          " threads and " + std::to_string(shape_.near_bytes) + " bytes of shared memory",
                      device.info().name + ", which gives a block " + std::to_string(device.info().near_bytes),
                      "device=\"cpu\"");
    shape_.workers = static_cast<int>(std::min<std::int64_t>(at_once, workers_with_work(program_)));
    if (!options.keep_source) source_ = std::string();
    record_ = structure_of(program_);
    record_.num_workers = shape_.workers;
    Keepers::all().insert(this, [this] {
      while (contexts_.take()) {
      }
    });
  }
  ~CudaEngine() override { Keepers::all().erase(this); }

  void run(void* const* inputs, void* const* outputs, std::int64_t rows) const override {
    if (fixed_rows_) rows = program_.max_rows;
    std::unique_ptr<Context> context = contexts_.take();
    if (!context) context = make_context();
    send(*context, inputs, rows);
    context->arguments.rows = rows;
    if (history_is_recording()) {
      context->stream->wait();
      const auto start = std::chrono::steady_clock::now();
      launch(*context);
      wait(*context);
      device_us_ = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    } else {
      launch(*context);
    }
    fetch(*context, outputs, rows);
    contexts_.put(std::move(context));
  }

  KernelRecord describe(std::int64_t) const override {
    KernelRecord record = record_;
    record.device_us = device_us_;
    return record;
  }
  std::string kernel_text() const override { return kernel::print(program_); }
  const std::string& source() const override { return source_; }
  std::string device() const override {
    const cuda::DeviceInfo& info = device_.info();
    const int blocks = shape_.workers * shape_.blocks;
    return info.name + ", " + std::to_string(blocks) + (blocks == 1 ? " block" : " blocks") + " of " +
           std::to_string(shape_.threads) + " threads" +
           (shape_.blocks > 1 ? ", " + std::to_string(shape_.blocks) + " side by side," : "") + " on " +
           std::to_string(info.multiprocessors) + " multiprocessors, " + std::to_string(shape_.near_bytes) +
           " B of shared memory each";
  }

 private:
  // For workers of shape_.blocks; how many run at once.
  int compile(const BackendOptions& options) {
    render::BlockText rendered = render::render_cuda(
        program_,
        {.worker = {.blocks = shape_.blocks, .threads = shape_.threads, .near_room = device_.info().near_bytes},
         .profile = std::getenv("HOTLOOP_CUDA_PROFILE") != nullptr});
    shape_.near_bytes = rendered.near_bytes;
    source_ = std::move(rendered.text);
    code_ = device_.compile(source_, {.cache_dir = options.cache_dir,
                                      .cache_bytes = options.cache_bytes,
                                      .flush_denormals = program_.flushes_denormals});
    return code_->workers_at_once(shape_);
  }

  std::unique_ptr<Context> make_context() const {
    const auto make = [&] { return std::make_unique<Context>(device_, program_, inputs_, outputs_, shape_.workers); };
    try {
      return make();
    } catch (const UserError&) {
      Keepers::all().give_back();
      return make();
    }
  }

  bool takes_over(std::size_t input) const {
    return std::ranges::find(program_.in_place, static_cast<int>(input)) != program_.in_place.end();
  }

  void launch(Context& c) const { c.stream->launch(*code_, shape_, c.arguments); }

  void send(Context& c, void* const* inputs, std::int64_t rows) const {
    std::size_t staged = 0;
    for (std::size_t i = 0; i < inputs_.offsets.size(); ++i) {
      if (!inputs_.is_small(i) || takes_over(i)) continue;
      const std::size_t bytes = inputs_.bytes_of(i, rows, program_.max_rows);
      std::memcpy(c.staged.at() + inputs_.offsets[i], inputs[i], bytes);
      staged = std::max(staged, inputs_.offsets[i] + bytes);
    }
    if (staged > 0) c.stream->copy_in(c.arrays.at(), c.staged.at(), staged);
    for (std::size_t i = 0; i < inputs_.offsets.size(); ++i)
      if (!inputs_.is_small(i) && !takes_over(i))
        c.stream->copy_in(c.input(inputs_, i), inputs[i], inputs_.bytes_of(i, rows, program_.max_rows));
    for (std::size_t i = 0; i < program_.in_place.size(); ++i)
      if (const int from = program_.in_place[i]; from >= 0)
        c.stream->copy_in(c.output(inputs_, outputs_, i), inputs[from], outputs_.bytes_of(i, rows, program_.max_rows));
  }

  void fetch(Context& c, void* const* outputs, std::int64_t rows) const {
    std::size_t staged = 0;
    for (std::size_t i = 0; i < outputs_.offsets.size(); ++i)
      if (outputs_.is_small(i))
        staged = std::max(staged, outputs_.offsets[i] + outputs_.bytes_of(i, rows, program_.max_rows));
    if (staged > 0) c.stream->copy_out(c.staged.at(), c.arrays.at() + inputs_.total, staged);
    wait(c);
    for (std::size_t i = 0; i < outputs_.offsets.size(); ++i) {
      const std::size_t bytes = outputs_.bytes_of(i, rows, program_.max_rows);
      if (outputs_.is_small(i))
        std::memcpy(outputs[i], c.staged.at() + outputs_.offsets[i], bytes);
      else
        c.stream->copy_out(outputs[i], c.output(inputs_, outputs_, i), bytes);
    }
    c.stream->wait();
  }

  // Until the kernel has ended; a request to end early goes to it.
  static void wait(Context& c) {
    // Questions to the driver, a microsecond each about, before this thread sleeps between them.
    constexpr int patience = 20000;
    const CancelToken& token = cancel_token();
    bool told = false;
    for (int asked = 0; !c.stream->is_done(); ++asked) {
      if (!told && token.requested()) {
        const std::int32_t end = 1;
        c.messages->copy_in(c.arguments.cancel, &end, sizeof end);
        c.messages->wait();
        told = true;
      }
      if (asked > patience) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    c.stream->wait();
    if (told) c.clear_words();
  }

  kernel::Program program_;
  cuda::Device& device_;
  Places inputs_, outputs_;
  bool fixed_rows_;
  std::unique_ptr<cuda::Code> code_;
  cuda::LaunchShape shape_;
  std::string source_;
  KernelRecord record_;
  mutable std::atomic<double> device_us_{0};  // of the last call that was recorded
  mutable ObjectPool<Context, 4> contexts_;   // let go of before the code
};

}  // namespace

std::unique_ptr<Engine> make_cuda_engine(kernel::Program program, cuda::Device& device, const BackendOptions& options,
                                         RowsOf rows, bool fixed_rows) {
  return std::make_unique<CudaEngine>(std::move(program), device, options, std::move(rows), fixed_rows);
}

}  // namespace hotloop::runtime
