#include "cuda/emulated_device.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <queue>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/error.h"

#if !defined(__x86_64__) || defined(HOTLOOP_EMULATED_UCONTEXT)
#define HOTLOOP_EMULATED_BY_UCONTEXT
#include <ucontext.h>
#endif

extern char** environ;

namespace hotloop::cuda {
namespace {

namespace fs = std::filesystem;

// What a kernel's text finds under HL_EMULATED in place of its own part for real devices. Meetings know their line in
// the text.
constexpr const char* part_before = R"(#include <stdint.h>
#include <string.h>

#define HL_DEVICE static inline
#define HL_KERNEL extern "C"
#define HL_TABLE static const
#define HL_LIKELY(x) __builtin_expect(!!(x), 1)
__extension__ typedef unsigned __int128 hl_wide;

// Filled in by the emulator whenever it lets a thread go on.
struct hl_emulated {
  int thread, block, num_blocks;
  unsigned char* near_memory;
  void (*sync)(int line);
  bool (*any)(bool value, int line);
  uint64_t (*down)(uint64_t bits, int delta, int width, int line);
  bool (*meet)(uint32_t* barrier, const volatile int32_t* cancel, int line);
};
static hl_emulated hl_emulated_now;
extern "C" hl_emulated* hl_emulated_part() { return &hl_emulated_now; }

static inline int hl_thread() { return hl_emulated_now.thread; }
static inline int hl_block() { return hl_emulated_now.block; }
static inline int hl_num_blocks() { return hl_emulated_now.num_blocks; }
static inline unsigned char* hl_near() { return hl_emulated_now.near_memory; }
static inline void hl_sync_at(int line) { hl_emulated_now.sync(line); }
static inline bool hl_any_at(int line, bool value) { return hl_emulated_now.any(value, line); }
static inline bool hl_meet_at(int line, uint32_t* barrier, const volatile int32_t* cancel) {
  return hl_emulated_now.meet(barrier, cancel, line);
}
template <class T> static inline T hl_down_at(int line, T value, int delta, int width) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "hl_down takes one number");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = hl_emulated_now.down(bits, delta, width, line);
  memcpy(&value, &bits, sizeof value);
  return value;
}
// hl_down<T>(...) is not the macro of that name.
template <class T> static inline T hl_down(T value, int delta, int width) { return hl_down_at(0, value, delta, width); }
#define hl_sync() hl_sync_at(__LINE__)
#define hl_any(...) hl_any_at(__LINE__, __VA_ARGS__)
#define hl_meet(...) hl_meet_at(__LINE__, __VA_ARGS__)
#define hl_down(...) hl_down_at(__LINE__, __VA_ARGS__)

#define HL_EMULATED_BUILTIN(NAME)                                                  \
  static inline float hl_##NAME##_f32(float x) { return __builtin_##NAME##f(x); }  \
  static inline double hl_##NAME##_f64(double x) { return __builtin_##NAME(x); }
HL_EMULATED_BUILTIN(fabs)
HL_EMULATED_BUILTIN(floor)
HL_EMULATED_BUILTIN(ceil)
HL_EMULATED_BUILTIN(rint)
HL_EMULATED_BUILTIN(sqrt)
static inline float hl_fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double hl_fma_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline int hl_clz(uint64_t x) { return x == 0 ? 64 : __builtin_clzll(x); }
)";

constexpr const char* part_behind = R"(
extern "C" int hl_emulated_threads() { return HL_THREADS; }
)";

struct Part {  // hl_emulated of the text above
  int thread, block, num_blocks;
  unsigned char* near_memory;
  void (*sync)(int line);
  bool (*any)(bool value, int line);
  std::uint64_t (*down)(std::uint64_t bits, int delta, int width, int line);
  bool (*meet)(std::uint32_t* barrier, const volatile std::int32_t* cancel, int line);
};

using KernelFunction = void (*)(KernelArguments);

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

// Bytes that end where memory that may not be touched begins, but for their alignment; what lies beside them is known.
class Guarded {
 public:
  Guarded() = default;
  Guarded(std::size_t bytes, std::size_t alignment) : bytes_(bytes) {
    inside_ = round_up(std::max<std::size_t>(bytes, 1), std::max(page, alignment));
    base_ = static_cast<unsigned char*>(
        mmap(nullptr, inside_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    show(true);
    std::memset(base_ + page, beside, inside_);
    begin_ = base_ + page + inside_ - round_up(bytes, alignment);
    poison();
  }
  Guarded(Guarded&& other) noexcept { *this = std::move(other); }
  Guarded& operator=(Guarded&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(begin_, other.begin_);
    std::swap(bytes_, other.bytes_);
    std::swap(inside_, other.inside_);
    return *this;
  }
  ~Guarded() {
    if (base_ != nullptr) munmap(base_, inside_ + 2 * page);
  }
  unsigned char* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }
  void poison() { std::memset(begin_, 0xff, bytes_); }
  void show(bool visible) {
    if (mprotect(base_ + page, inside_, visible ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) throw std::bad_alloc();
  }
  // "" or how far beside it was written.
  std::string written_beside() const {
    for (const unsigned char* at = begin_; at-- > base_ + page;) {
      if (*at != beside) return std::to_string(begin_ - at) + " bytes before";
    }
    for (const unsigned char* at = begin_ + bytes_; at < base_ + page + inside_; ++at) {
      if (*at != beside) return std::to_string(at - begin_ - static_cast<std::ptrdiff_t>(bytes_)) + " bytes behind";
    }
    return "";
  }

 private:
  static constexpr unsigned char beside = 0xa5;
  unsigned char* base_ = nullptr;
  unsigned char* begin_ = nullptr;
  std::size_t bytes_ = 0, inside_ = 0;
};

class Memory {
 public:
  explicit Memory(const EmulatedOptions& options) : limit_(options.memory_bytes), hidden_(options.hidden_memory) {}

  Address allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (static_cast<std::int64_t>(in_use_ + bytes) > limit_) {
      throw UserError("cuda", "needs " + std::to_string(bytes) + " bytes of the device's memory",
                      std::to_string(limit_ - static_cast<std::int64_t>(in_use_)) + " bytes that are free",
                      "take smaller batches");
    }
    Guarded memory(bytes, 256);
    if (hidden_ && users_ == 0) memory.show(false);
    const Address at = reinterpret_cast<Address>(memory.begin());
    in_use_ += bytes;
    allocations_.emplace(at, std::move(memory));
    return at;
  }

  void release(Address at) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(at);
    if (found == allocations_.end()) {
      std::fprintf(stderr, "emulated device: %#llx is released, which is not allocated\n",
                   static_cast<unsigned long long>(at));
      std::abort();
    }
    in_use_ -= found->second.bytes();
    allocations_.erase(found);
  }

  std::size_t in_use() {
    const std::lock_guard lock(mutex_);
    return in_use_;
  }

  // Throws unless the bytes lie in one allocation.
  void check(Address at, std::size_t bytes, const char* what) {
    const std::lock_guard lock(mutex_);
    auto found = allocations_.upper_bound(at);
    if (found == allocations_.begin() || (--found, at + bytes > found->first + found->second.bytes())) {
      std::ostringstream text;
      text << what << " of " << bytes << " bytes at 0x" << std::hex << at << ", which are not in one allocation";
      throw EmulationError(text.str());
    }
  }

  void check_guards() {
    const std::lock_guard lock(mutex_);
    for (const auto& [at, memory] : allocations_) {
      const std::string where = memory.written_beside();
      if (!where.empty()) {
        throw EmulationError("a kernel wrote " + where + " an allocation of " + std::to_string(memory.bytes()) +
                             " bytes");
      }
    }
  }

  // Kernels and copies run while one of these lives.
  class Use {
   public:
    explicit Use(Memory& memory) : memory_(memory) { memory_.use(1); }
    // Of these bytes, which may have been released since it was asked for.
    Use(Memory& memory, Address at, std::size_t bytes, const char* what) : Use(memory) {
      memory_.check(at, bytes, what);
    }
    ~Use() { memory_.use(-1); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Memory& memory_;
  };

 private:
  void use(int change) {
    const std::lock_guard lock(mutex_);
    const bool was_used = users_ > 0;
    users_ += change;
    if (!hidden_ || was_used == (users_ > 0)) return;
    for (auto& [at, memory] : allocations_) memory.show(users_ > 0);
  }

  std::mutex mutex_;
  std::map<Address, Guarded> allocations_;
  std::size_t in_use_ = 0;
  const std::int64_t limit_;
  const bool hidden_;
  int users_ = 0;
};

#ifdef HOTLOOP_EMULATED_BY_UCONTEXT
using Context = ucontext_t;

void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }

void prepare_context(Context& context, unsigned char* stack, std::size_t bytes, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}
#else
// A stack pointer, where the registers lie that a function must preserve. Modes of rounding are those of all threads.
using Context = void*;

extern "C" void hotloop_emulated_switch(Context* from, Context to);
asm(R"(
  .text
  .globl hotloop_emulated_switch
  .hidden hotloop_emulated_switch
  .type hotloop_emulated_switch, @function
hotloop_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size hotloop_emulated_switch, .-hotloop_emulated_switch
)");

void switch_context(Context& from, Context& to) { hotloop_emulated_switch(&from, to); }

void prepare_context(Context& context, unsigned char* stack, std::size_t bytes, void (*entry)()) {
  // As if `entry` had been called from nowhere: the stack is aligned before its return address.
  void** top = reinterpret_cast<void**>(stack + bytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context = top;
}
#endif

// Stacks of one size with a guard before each, made once and used by all launches.
class Stacks {
 public:
  static constexpr std::size_t bytes = 64 << 10;
  ~Stacks() {
    for (unsigned char* stack : stacks_) munmap(stack - page, page + bytes);
  }
  unsigned char* at(std::size_t i) {
    while (stacks_.size() <= i) {
      void* memory = mmap(nullptr, page + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) throw std::bad_alloc();
      stacks_.push_back(static_cast<unsigned char*>(memory) + page);
    }
    return stacks_[i];
  }

 private:
  std::vector<unsigned char*> stacks_;
};

enum class State { Ready, Sync, Any, Down, Meet, Done };

constexpr const char* names_of_states[] = {"can run",    "at hl_sync", "at hl_any",
                                           "at hl_down", "at hl_meet", "returned"};

struct Fiber {
  Context context{};
  State state = State::Ready;
  int block = 0, thread = 0;
  int line = 0;              // of the text, where it waits
  int delta = 0, width = 0;  // of hl_down
  std::uint64_t value = 0;   // what it brought to a meeting, then what it gets
  std::uint32_t* barrier = nullptr;
  const volatile std::int32_t* cancel = nullptr;
};

struct Loaded;

// One launch at a time.
class Machine {
 public:
  void run(Part& part, KernelFunction kernel, int blocks, int threads, std::size_t near_bytes,
           const KernelArguments& arguments, const EmulatedOptions& options, std::mt19937_64& random,
           EmulatedCounters& counters);

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
  void settle_block(int block);
  void settle_meeting();
  void leave_meeting(int block, bool cancelled);
  bool release_cancelled();
  std::string report() const;
  Fiber* of_block(int block) { return fibers_.data() + static_cast<std::ptrdiff_t>(block) * threads_; }

  Context scheduler_{};
  Fiber* current_ = nullptr;
  KernelFunction kernel_ = nullptr;
  const KernelArguments* arguments_ = nullptr;
  const EmulatedOptions* options_ = nullptr;
  std::mt19937_64* random_ = nullptr;
  EmulatedCounters* counters_ = nullptr;
  int blocks_ = 0, threads_ = 0;
  std::vector<Fiber> fibers_;  // block by block
  std::vector<int> waiting_;   // a block: threads at hl_sync, hl_any or hl_meet
  std::vector<bool> at_meet_;  // a block: all of it is
  int num_at_meet_ = 0;
  std::int64_t meets_ = 0;
  using Entry = std::pair<std::int64_t, Fiber*>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;
  Stacks stacks_;
};

Machine* Machine::active = nullptr;

void hook_sync(int line) {
  Fiber& fiber = Machine::current();
  fiber.state = State::Sync;
  fiber.line = line;
  Machine::give_way();
}

bool hook_any(bool value, int line) {
  Fiber& fiber = Machine::current();
  fiber.state = State::Any;
  fiber.line = line;
  fiber.value = value;
  Machine::give_way();
  return fiber.value != 0;
}

std::uint64_t hook_down(std::uint64_t bits, int delta, int width, int line) {
  Fiber& fiber = Machine::current();
  fiber.state = State::Down;
  fiber.line = line;
  fiber.value = bits;
  fiber.delta = delta;
  fiber.width = width;
  Machine::give_way();
  return fiber.value;
}

bool hook_meet(std::uint32_t* barrier, const volatile std::int32_t* cancel, int line) {
  Fiber& fiber = Machine::current();
  fiber.state = State::Meet;
  fiber.line = line;
  fiber.barrier = barrier;
  fiber.cancel = cancel;
  Machine::give_way();
  return fiber.value != 0;
}

void Machine::run(Part& part, KernelFunction kernel, int blocks, int threads, std::size_t near_bytes,
                  const KernelArguments& arguments, const EmulatedOptions& options, std::mt19937_64& random,
                  EmulatedCounters& counters) {
  kernel_ = kernel;
  arguments_ = &arguments;
  options_ = &options;
  random_ = &random;
  counters_ = &counters;
  blocks_ = blocks;
  threads_ = threads;
  num_at_meet_ = 0;
  meets_ = 0;
  const auto num_fibers = static_cast<std::size_t>(blocks) * static_cast<std::size_t>(threads);
  fibers_.assign(num_fibers, Fiber{});
  waiting_.assign(static_cast<std::size_t>(blocks), 0);
  at_meet_.assign(static_cast<std::size_t>(blocks), false);
  ready_ = {};
  std::vector<Guarded> near_memory;
  for (int b = 0; b < blocks; ++b) near_memory.emplace_back(near_bytes, 128);
  part = {0, 0, blocks, nullptr, hook_sync, hook_any, hook_down, hook_meet};
  active = this;
  for (std::size_t i = 0; i < num_fibers; ++i) {
    Fiber& fiber = fibers_[i];
    fiber.block = static_cast<int>(i) / threads;
    fiber.thread = static_cast<int>(i) % threads;
    prepare_context(fiber.context, stacks_.at(i), Stacks::bytes, fiber_main);
    make_ready(fiber);
  }

  std::size_t num_done = 0;
  while (num_done < num_fibers) {
    if (ready_.empty()) {
      if (release_cancelled()) continue;
      throw EmulationError("threads wait for others that do not come: " + report());
    }
    current_ = ready_.top().second;
    ready_.pop();
    part.thread = current_->thread;
    part.block = current_->block;
    part.near_memory = near_memory[static_cast<std::size_t>(current_->block)].begin();
    switch_context(scheduler_, current_->context);
    if (current_->state == State::Done) {
      ++num_done;
    } else {
      settle(*current_);
    }
  }
  for (const Guarded& memory : near_memory) {
    const std::string where = memory.written_beside();
    if (!where.empty()) throw EmulationError("a kernel wrote " + where + " the shared memory of a block");
  }
}

void Machine::make_ready(Fiber& fiber) {
  fiber.state = State::Ready;
  const std::int64_t place = &fiber - fibers_.data();
  const std::int64_t key = options_->order == ThreadOrder::Forward    ? place
                           : options_->order == ThreadOrder::Backward ? -place
                                                                      : static_cast<std::int64_t>((*random_)() >> 1);
  ready_.emplace(key, &fiber);
}

void Machine::settle(Fiber& fiber) {
  if (fiber.state == State::Down) {
    settle_group(fiber);
  } else if (++waiting_[static_cast<std::size_t>(fiber.block)] == threads_) {
    settle_block(fiber.block);
  }
}

void Machine::settle_group(Fiber& fiber) {
  const int width = fiber.width;
  if (width < 1 || width > 32 || (width & (width - 1)) != 0 || threads_ % width != 0 || fiber.delta < 0) {
    throw EmulationError("line " + std::to_string(fiber.line) + ": hl_down by " + std::to_string(fiber.delta) +
                         " in groups of " + std::to_string(width) + " among " + std::to_string(threads_) + " threads");
  }
  Fiber* const group = of_block(fiber.block) + fiber.thread / width * width;
  for (int i = 0; i < width; ++i) {
    const Fiber& other = group[i];
    if (other.state != State::Down || other.width != width) return;
  }
  for (int i = 0; i < width; ++i) {
    if (group[i].line != fiber.line || group[i].delta != fiber.delta) {
      throw EmulationError("threads of a group are at different calls of hl_down: " + report());
    }
  }
  // Upwards, what is taken has not been replaced yet.
  for (int i = 0; i + fiber.delta < width; ++i) group[i].value = group[i + fiber.delta].value;
  for (int i = 0; i < width; ++i) make_ready(group[i]);
  ++counters_->downs;
}

void Machine::settle_block(int block) {
  Fiber* const first = of_block(block);
  bool any = false;
  for (int i = 0; i < threads_; ++i) {
    const Fiber& fiber = first[i];
    if (fiber.state != first->state || fiber.line != first->line) {
      throw EmulationError("threads of a block wait at different places: " + report());
    }
    if (fiber.state == State::Meet && (fiber.barrier != first->barrier || fiber.cancel != first->cancel)) {
      throw EmulationError("threads of a block meet by different words: " + report());
    }
    any |= fiber.value != 0;
  }
  if (first->state == State::Meet) {
    at_meet_[static_cast<std::size_t>(block)] = true;
    if (first->barrier == nullptr) {
      throw EmulationError("line " + std::to_string(first->line) + ": hl_meet without a barrier");
    }
    ++first->barrier[0];
    if (++num_at_meet_ == blocks_) settle_meeting();
    return;
  }
  waiting_[static_cast<std::size_t>(block)] = 0;
  ++(first->state == State::Sync ? counters_->syncs : counters_->anys);
  const bool is_any = first->state == State::Any;
  for (int i = 0; i < threads_; ++i) {
    if (is_any) first[i].value = any;
    make_ready(first[i]);
  }
}

void Machine::settle_meeting() {
  const Fiber& one = fibers_[0];
  for (int b = 1; b < blocks_; ++b) {
    const Fiber& other = *of_block(b);
    if (other.barrier != one.barrier || other.cancel != one.cancel) {
      throw EmulationError("blocks meet by different words: " + report());
    }
    // After a cancellation blocks may be at different places.
    if (other.line != one.line && (one.cancel == nullptr || *one.cancel == 0)) {
      throw EmulationError("blocks wait at different places: " + report());
    }
  }
  std::uint32_t* const barrier = one.barrier;
  const volatile std::int32_t* const cancel = one.cancel;
  const bool was_cancelled = cancel != nullptr && *cancel != 0;
  const bool cancels_here = meets_ == options_->cancel_at_meet && cancel != nullptr;
  // What a run that is cancelled leaves there is worth nothing: others must be zero again before the next run.
  if (!was_cancelled) {
    if (barrier[0] != static_cast<std::uint32_t>(blocks_)) {
      throw EmulationError("line " + std::to_string(one.line) +
                           ": the words of hl_meet were not zero, as they must be before the first launch and after a "
                           "run that was cancelled");
    }
    barrier[0] = 0;
  }
  ++barrier[1];
  ++meets_;
  ++counters_->meets;
  if (cancels_here) *const_cast<volatile std::int32_t*>(cancel) = 1;
  for (int b = 0; b < blocks_; ++b) leave_meeting(b, was_cancelled || (cancels_here && b % 2 == 1));
}

void Machine::leave_meeting(int block, bool cancelled) {
  at_meet_[static_cast<std::size_t>(block)] = false;
  waiting_[static_cast<std::size_t>(block)] = 0;
  --num_at_meet_;
  Fiber* const first = of_block(block);
  for (int i = 0; i < threads_; ++i) {
    first[i].value = cancelled;
    make_ready(first[i]);
  }
}

bool Machine::release_cancelled() {
  bool any = false;
  for (int b = 0; b < blocks_; ++b) {
    const volatile std::int32_t* const cancel = of_block(b)->cancel;
    if (!at_meet_[static_cast<std::size_t>(b)] || cancel == nullptr || *cancel == 0) continue;
    leave_meeting(b, true);
    any = true;
  }
  return any;
}

std::string Machine::report() const {
  std::ostringstream text;
  for (int b = 0; b < blocks_; ++b) {
    std::map<std::pair<State, int>, std::pair<int, int>> groups;  // state and line: how many, and the first of them
    for (int i = 0; i < threads_; ++i) {
      const Fiber& fiber =
          fibers_[static_cast<std::size_t>(b) * static_cast<std::size_t>(threads_) + static_cast<std::size_t>(i)];
      const bool waits = fiber.state != State::Ready && fiber.state != State::Done;
      auto& [count, first] = groups[{fiber.state, waits ? fiber.line : 0}];
      if (count++ == 0) first = i;
    }
    text << (b == 0 ? "" : "; ") << "block " << b << ":";
    const char* separator = " ";
    for (const auto& [key, value] : groups) {
      text << separator << value.first << " of " << threads_ << " threads (from " << value.second << ") "
           << names_of_states[static_cast<int>(key.first)];
      if (key.second != 0) text << " in line " << key.second;
      separator = ", ";
    }
  }
  return text.str();
}

// Of the process: their parts and stacks are used by one launch at a time.
std::mutex launches_mutex;

class PrivateDirectory {
 public:
  PrivateDirectory() {
    std::string pattern = (fs::temp_directory_path() / "hotloop-emulated-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw EmulationError("no temporary directory: " + pattern);
    path_ = pattern;
  }
  ~PrivateDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

int run_command(const std::vector<std::string>& command, const fs::path& log) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct Loaded {
  ~Loaded() {
    if (handle != nullptr) dlclose(handle);
  }
  void* handle = nullptr;
  KernelFunction kernel = nullptr;
  Part* part = nullptr;
  int threads = 0;
  std::size_t code_bytes = 0;
};

template <class Function> Function symbol(void* handle, const char* name) {
  void* found = dlsym(handle, name);
  if (found == nullptr) throw EmulationError(std::string("the rendered CUDA has no ") + name);
  return reinterpret_cast<Function>(found);
}

std::shared_ptr<Loaded> compile_now(const std::string& source) {
  const PrivateDirectory directory;
  const fs::path before = directory / "before.h", text = directory / "kernel.cpp", object = directory / "kernel.so",
                 log = directory / "log";
  std::ofstream(before) << part_before;
  std::ofstream(text) << source << part_behind;
  const char* chosen = std::getenv("CXX");
  std::vector<std::string> command = {chosen != nullptr && *chosen != '\0' ? chosen : "c++"};
  for (const char* word : {"-std=gnu++17", "-O1", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing", "-fPIC",
                           "-shared", "-w", "-DHL_EMULATED"}) {
    command.emplace_back(word);
  }
#if defined(__x86_64__)
  command.emplace_back("-march=native");
#endif
  for (const std::string& word : {std::string("-include"), before.string(), text.string(), std::string("-o"),
                                  object.string(), std::string("-lm")}) {
    command.push_back(word);
  }
  if (run_command(command, log) != 0) {
    std::ostringstream said;
    said << std::ifstream(log).rdbuf();
    throw EmulationError("the rendered CUDA does not compile: " + said.str().substr(0, 4000));
  }
  auto loaded = std::make_shared<Loaded>();
  loaded->handle = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded->handle == nullptr) {
    throw EmulationError(std::string("the compiled kernel does not load: ") + dlerror());
  }
  loaded->kernel = symbol<KernelFunction>(loaded->handle, "hotloop_kernel");
  loaded->part = symbol<Part* (*)()>(loaded->handle, "hl_emulated_part")();
  loaded->threads = symbol<int (*)()>(loaded->handle, "hl_emulated_threads")();
  loaded->code_bytes = static_cast<std::size_t>(fs::file_size(object));
  return loaded;
}

std::shared_ptr<Loaded> compile_once(const std::string& source) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Loaded>> known;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Loaded>& loaded = known[source];
  if (loaded == nullptr) loaded = compile_now(source);
  return loaded;
}

class EmulatedCode : public Code {
 public:
  EmulatedCode(std::shared_ptr<Loaded> loaded, const EmulatedOptions& options)
      : loaded_(std::move(loaded)), options_(options) {}
  int blocks_at_once(int threads, std::int64_t near_bytes) override {
    if (threads < 1 || threads > 1024 || near_bytes < 0 || near_bytes > options_.near_bytes) return 0;
    const std::int64_t by_threads = 2048 / threads;
    const std::int64_t by_near = near_bytes == 0 ? by_threads : options_.near_bytes / near_bytes;
    return static_cast<int>(std::min({by_threads, by_near, std::int64_t{options_.blocks_per_multiprocessor}}));
  }
  const std::shared_ptr<Loaded>& loaded() const { return loaded_; }

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
  void launch(Code& code, int blocks, int threads, std::int64_t near_bytes, const KernelArguments& arguments) override;
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
    info_.memory_bytes = chosen.memory_bytes;
    info_.versions = "emulated by the system's C++ compiler";
  }
  const DeviceInfo& info() const override { return info_; }

  std::unique_ptr<Code> compile(const std::string& source, const CodeOptions&) override {
    const auto start = std::chrono::steady_clock::now();
    auto code = std::make_unique<EmulatedCode>(compile_once(source), options);
    code->compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    code->code_bytes = code->loaded()->code_bytes;
    const std::lock_guard lock(mutex_);
    code->from_cache = !compiled_.insert(code->loaded().get()).second;
    if (!code->from_cache) ++counters.compiles;
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

  void run(const Loaded& loaded, int blocks, int threads, std::int64_t near_bytes, const KernelArguments& arguments) {
    static Machine machine;
    const std::lock_guard lock(launches_mutex);
    const Memory::Use use(memory);
    ++counters.launches;
    machine.run(*loaded.part, loaded.kernel, blocks, threads, static_cast<std::size_t>(near_bytes), arguments, options,
                random_, counters);
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

void EmulatedStream::launch(Code& code, int blocks, int threads, std::int64_t near_bytes,
                            const KernelArguments& arguments) {
  auto& emulated = dynamic_cast<EmulatedCode&>(code);
  const std::shared_ptr<Loaded> loaded = emulated.loaded();
  if (threads != loaded->threads) {
    throw EmulationError("a launch with " + std::to_string(threads) + " threads of a kernel for " +
                         std::to_string(loaded->threads));
  }
  const int at_once = emulated.blocks_at_once(threads, near_bytes) * device_.options.multiprocessors;
  if (blocks < 1 || blocks > at_once) {
    throw EmulationError("a launch of " + std::to_string(blocks) + " blocks, of which " + std::to_string(at_once) +
                         " run at once");
  }
  perform([this, loaded, blocks, threads, near_bytes, arguments] {
    device_.run(*loaded, blocks, threads, near_bytes, arguments);
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
