// Running a program with each of its buffers between pages that may not be touched: inputs, results, and what the memory plan would put into one
// arena. Code that is generated has no sanitizer; here whatever it reads or writes beyond a buffer ends in a fault, which names the buffer.
// Since no two buffers share memory, results that differ from those of an ordinary run tell of a wrong memory plan.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "backends/backend.h"
#include "runtime/lowering.h"

namespace hotloop::testing {

// Places in one reservation, each against the end of accessible memory, or against its beginning, whichever is asked for.
class GuardedMemory {
 public:
  GuardedMemory() = default;
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() {
    if (base_ != nullptr) munmap(base_, static_cast<std::size_t>(bytes_));
  }
  // Before make(): room for so many bytes, which is at the returned offset.
  std::int64_t add(const std::string& name, std::int64_t bytes, bool at_end) {
    const std::int64_t inside = (bytes + page - 1) / page * page, first = bytes_ + page;
    places_.push_back({name, first, inside, at_end ? first + inside - bytes : first, bytes});
    bytes_ += page + inside;
    return places_.back().begin;
  }
  // All of it is accessible in places alone, and holds a NaN.
  void make() {
    bytes_ += page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    for (const Place& p : places_) {
      if (p.inside == 0) continue;
      if (mprotect(base_ + p.first, static_cast<std::size_t>(p.inside), PROT_READ | PROT_WRITE) != 0)
        throw std::bad_alloc();
      std::memset(base_ + p.first, 0xff, static_cast<std::size_t>(p.inside));
    }
  }
  std::byte* base() const { return base_; }
  // "12 bytes behind h", or "" for an address that is not here.
  std::string where(const void* address) const {
    const std::int64_t at = static_cast<const std::byte*>(address) - base_;
    if (base_ == nullptr || at < 0 || at >= bytes_) return "";
    std::string best;
    std::int64_t nearest = bytes_;
    for (const Place& p : places_) {
      const std::int64_t behind = at - (p.begin + p.bytes), before = p.begin - at;
      if (behind >= 0 && behind < nearest) nearest = behind, best = std::to_string(behind) + " bytes behind " + p.name;
      if (before > 0 && before < nearest) nearest = before, best = std::to_string(before) + " bytes before " + p.name;
    }
    return best;
  }
  // Which place was written beside, where that is accessible still; "" if none was.
  std::string written_beside() const {
    for (const Place& p : places_)
      for (std::int64_t i = p.first; i < p.first + p.inside; ++i)
        if ((i < p.begin || i >= p.begin + p.bytes) && base_[i] != std::byte{0xff}) return where(base_ + i);
    return "";
  }

 private:
  struct Place {
    std::string name;
    std::int64_t first, inside, begin, bytes;
  };
  static inline const std::int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<Place> places_;
  std::int64_t bytes_ = 0;
  std::byte* base_ = nullptr;
};

// Calls `run`, and gives the address whose access ended it, or nullptr. What it calls must have nothing to clean up.
template <class Run> const void* address_of_fault(Run run) {
  static thread_local sigjmp_buf back;
  static thread_local const void* volatile address;
  struct sigaction action {
  }, before{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    address = info->si_addr;

    siglongjmp(back, 1);
  };
  address = nullptr;
  sigaction(SIGSEGV, &action, &before);
  if (sigsetjmp(back, 1) == 0) run();
  sigaction(SIGSEGV, &before, nullptr);
  return address;
}

// The results of a graph, run by one worker so that each buffer, its end rounded up to 64 bytes in arenas, lies against a guard. With fewer
// rows than the graph was traced for, `output_types` says how large results are; else empty.
inline std::vector<Array> run_between_guards(const Graph& graph, std::span<const Array> inputs, CompileOptions options,
                                             bool at_end, std::int64_t rows = 0,
                                             std::vector<ValueType> output_types = {}) {
  options.target = runtime::target_of(options);
  runtime::Lowered lowered = runtime::lower(graph, options, kernel::target_named(options.target));
  kernel::Program& program = lowered.program;
  GuardedMemory outside, shared, worker;
  for (kernel::Buffer& b : program.buffers) {
    if (b.space != kernel::Space::Shared && b.space != kernel::Space::Worker) continue;
    GuardedMemory& arena = b.space == kernel::Space::Shared ? shared : worker;
    b.offset = arena.add(b.name + "#" + std::to_string(&b - program.buffers.data()),
                         (kernel::bytes_of(b) + 63) / 64 * 64, at_end);
  }
  std::vector<std::int64_t> input_offsets, output_offsets;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    input_offsets.push_back(
        outside.add("input " + std::to_string(i), static_cast<std::int64_t>(inputs[i].bytes()), at_end));
  if (output_types.empty()) output_types = program.results;
  for (std::size_t i = 0; i < output_types.size(); ++i)
    output_offsets.push_back(
        outside.add("output " + std::to_string(i),
                    output_types[i].shape.size() * static_cast<std::int64_t>(size_of(output_types[i].dtype)), at_end));
  for (GuardedMemory* memory : {&outside, &shared, &worker}) memory->make();
  std::vector<void*> arguments, results;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    arguments.push_back(outside.base() + input_offsets[i]);
    std::memcpy(arguments.back(), inputs[i].raw(), inputs[i].bytes());
  }
  for (const std::int64_t offset : output_offsets) results.push_back(outside.base() + offset);

  const auto kernel = options.backend == "c" ? compile_c(program) : compile_llvm(program);
  const std::int32_t never = 0;
  KernelContext context{};
  context.arguments = arguments.data();
  context.results = results.data();
  context.shared = shared.base();
  context.scratch = worker.base();
  context.rows = rows == 0 ? program.max_rows : rows;
  context.num_workers = 1;
  context.cancel = &never;
  for (std::int64_t turn = 0; turn < 2; ++turn) {  // both directions in which weights are gone through
    context.turn = turn;
    if (const void* address = address_of_fault([&] { kernel->function()(&context); })) {
      std::string where;
      for (const GuardedMemory* memory : {&outside, &shared, &worker})
        if (where.empty()) where = memory->where(address);
      ADD_FAILURE() << "a fault " << (where.empty() ? "elsewhere" : where);
      break;
    }
  }
  for (const GuardedMemory* memory : {&outside, &shared, &worker}) {
    const std::string where = memory->written_beside();
    if (!where.empty()) ADD_FAILURE() << "written " << where;
  }
  std::vector<Array> outputs;
  for (std::size_t i = 0; i < output_types.size(); ++i) {
    outputs.emplace_back(output_types[i].dtype, output_types[i].shape);
    std::memcpy(outputs.back().raw(), results[i], outputs.back().bytes());
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    EXPECT_EQ(std::memcmp(arguments[i], inputs[i].raw(), inputs[i].bytes()), 0) << "input " << i << " was written";
  return outputs;
}

// Between guards the program gives the bits that it gives in an ordinary run.
inline void expect_within_guards(const Graph& graph, std::span<const Array> inputs, const CompileOptions& options,
                                 bool at_end, std::span<const Array> wanted, std::int64_t rows = 0) {
  if (options.device == "cuda") return;  // the emulated device has guards of its own
  std::vector<ValueType> types;
  for (const Array& a : wanted) types.push_back(a.type());
  const std::vector<Array> got = run_between_guards(graph, inputs, options, at_end, rows, types);
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(same_bits(got[i], wanted[i])) << "output " << i << ", each buffer in memory of its own";
}

}  // namespace hotloop::testing
