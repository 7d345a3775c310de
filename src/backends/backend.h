// What a backend is: kernel IR in, a function out.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schedule/kernel_ir.h"

namespace hotloop {

// The argument of a compiled program, one a worker. Generated code knows these offsets.
struct KernelContext {
  void* const* arguments;  // one pointer an input
  void* const* results;    // one pointer an output
  std::byte* shared;       // 64-byte aligned arenas
  std::byte* scratch;      // of this worker
  std::int64_t rows;
  std::int64_t worker, num_workers;
  // Joins the workers that have not returned: cancelled ones may return at different barriers. Not called when
  // num_workers is 1.
  void (*barrier)(void* team);
  void* team;
  const std::int32_t* cancel;  // polled once a block and once an iteration of a serial loop; nonzero: return early
  // Any number, best the number of calls before this one: what is read anew each time, such as weights larger than the first cache,
  // is gone through forwards and backwards in turns, and begins with what is still in the cache. Results do not depend on it.
  std::int64_t turn;
};
static_assert(sizeof(KernelContext) == 88);

using KernelFunction = void (*)(const KernelContext*);

// A statement of a kernel with clocks (BackendOptions::clocks), or two that run as one: a Dot or Map by its name and extents, a Pack by what it fills.
struct ClockedStatement {
  std::string text;
  bool multiplies;  // a Dot is among them
};
// What it has taken since the kernel was loaded, over all of its runs.
struct StatementClock {
  std::int64_t runs;
  std::int64_t points;  // multiply-adds of a Dot; points of a Map, numbers of a Pack
  std::int64_t ticks;   // of the processor's clock, all of one length
};

class CompiledKernel {
 public:
  virtual ~CompiledKernel() = default;
  virtual KernelFunction function() const = 0;
  double compile_ms = 0;
  bool from_cache = false;
  std::size_t code_bytes = 0;
  int num_objects = 1;      // that it is linked of
  std::string cache_entry;  // its name, where one in the disk cache is of this code
  std::string source;       // what the backend printed (LLVM IR or C), if asked for
  // With BackendOptions::clocks, of each in turn. Runs of one worker at a time count right, and runs of several do not.
  std::vector<ClockedStatement> clocked;
  const StatementClock* clocks = nullptr;
};

struct BackendOptions {
  bool keep_source = false;
  std::string cache_dir = {};                          // one that exists; empty: no disk cache
  std::int64_t cache_bytes = std::int64_t{256} << 20;  // of its files, at most
  int compile_threads = 1;                             // at most, of the llvm backend
  bool clocks = false;                                 // it tells how long each statement takes; of the llvm backend
  bool emulates_blocks = false;  // dots in blocks without the instructions for them, as on processors that have none
};

// What an object file holds besides its glue: a kernel, and a block of bytes.
struct ObjectKernel {
  std::string symbol;  // void symbol(const KernelContext*), seen inside the object alone
  const kernel::Program* program;
  std::string cpu;  // whose instructions, by LLVM's name: x86-64-v2, x86-64-v3, x86-64-v4; generic of AArch64
};
struct ObjectData {
  std::string symbol;  // aligned to 64 bytes, seen inside the object alone
  std::vector<Array> arrays;
  std::vector<std::int64_t> offsets;  // of each, in bytes
  std::int64_t bytes = 0;
};
// An ELF object for Linux on the processors that the kernels' targets are for, position-independent. `glue` is LLVM IR: the functions that
// the object offers, which call the kernels. Only where can_compile_objects(): a build without LLVM cannot.
bool can_compile_objects();
std::string compile_object(std::span<const ObjectKernel> kernels, std::span<const ObjectData> data,
                           const std::string& glue);

// "llvm": LLVM 19 ORC, in src/backends/llvm. "c": plain C through the system's compiler, in src/backends/render.
std::unique_ptr<CompiledKernel> compile_llvm(const kernel::Program& program, const BackendOptions& options = {});
// What compile_llvm kept in the entry of that name (CompiledKernel::cache_entry), or nothing if it is gone.
std::unique_ptr<CompiledKernel> load_llvm(const std::string& cache_entry, const BackendOptions& options);
// What code of a graph comes from besides the graph, for keys: this library's sources, the version of LLVM, the processor.
std::string llvm_origin(const kernel::Target& target);
std::unique_ptr<CompiledKernel> compile_c(const kernel::Program& program, const BackendOptions& options = {});

}  // namespace hotloop
