// Compiling a graph to one executable, and running it.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/cancel.h"
#include "hotloop/graph.h"
#include "hotloop/signature.h"

namespace hotloop {

struct CompileOptions {
  // auto | cpu | cuda. cuda: the whole program is one launch on the first CUDA device, found when it is first asked for; results are those of the processor, to
  // the bit but for sums over the batch, which have more parts there. Inputs go to the device and outputs come back with each call. auto: the one that
  // an estimate of both says, the processor unless the device takes less than half as long; explain() has the two.
  std::string device = "auto";
  std::string backend = "llvm";  // llvm | c | interp (the oracle)
  // host | amx (avx512 but for dots with factors in bfloat16) | avx512 | avx2 | neon (AArch64) | portable (every processor; products and sums are rounded
  // apart)
  std::string target = "host";
  // Of the processor. At most so many; 0: as many as there are cores. Each call takes those whose share of its work is worth waking them for (explain()
  // says how many), so that a small program stays on one. Results are the same bits for every number.
  int threads = 1;
  // fused: the whole program as one kernel. per_op: every op compiled and launched on its own and loops run by the host, as
  // frameworks do that dispatch op by op, and without the passes that restructure a program: what fusion is worth, measured
  // (explain() has the number of launches). Results differ by rounding where a fused kernel sums several dots as one.
  std::string dispatch = "fused";
  // bf16: the factors of f32 dots are rounded to bfloat16 (8 significant bits) and kept as such while they are multiplied; their products are
  // added in f32, and all else, parameters included, stays f32. Up to twice the rate of f32 where the processor multiplies pairs of them
  // (AMD's AVX512-BF16), several times where it multiplies blocks (Intel's AMX, which adds in another order); factors and sums below 1.2e-38 then
  // count as 0. Slower elsewhere. Dots of f64 stay as they are, and so does a dot of one term where the program makes a multiplication of it.
  std::string dot_precision = "f32";
  // Arithmetic of f32 and f64 counts operands and results below the normal range (1.2e-38, 2.2e-308) as 0 with their sign; what only moves numbers
  // keeps their bits. Where such numbers come up, some processors then save most of the time. Threads do so inside calls alone, and the caller's mode
  // is what it was when a call returns or throws. On a CUDA device f32 alone. Where it is false a call computes in the mode of the thread that makes it.
  // Nothing: true where a loop runs from its last step to its first, as gradients of recurrences do, which vanish over many steps.
  std::optional<bool> flush_denormals = {};
  // For each input, the axis that holds the batch, or -1. When given, a call may bring fewer rows than the graph was traced for:
  // every batch axis then has that many, and extent() gives their number.
  std::vector<int> batch_axes = {};
  // Inputs, by number, that a call may consume: an output of the same type is computed into such an input's memory where the schedule
  // shows that nothing reads an element of the input after that element was written (explain() says for which), see run_donating().
  std::vector<int> donated = {};
  std::vector<std::string> disabled_passes = {};  // names of optional passes, or "all"
  bool keep_source = false;
};

// One compiled program. Calls are thread-safe; a steady-state call of a compiled kernel takes no lock, spawns no thread and takes its
// memory from a recycling pool. per_op takes a lock in each call, the interpreter where it has batch axes.
class Executable {
 public:
  // Runs on arrays of the traced types (batch axes may be shorter, see CompileOptions). Throws UserError naming the
  // argument and both types otherwise.
  std::vector<Array> operator()(std::span<const Array> inputs) const;
  // The same into `outputs`, one array each, which are replaced: the form that allocates nothing, not even a vector.
  void run(std::span<const Array> inputs, std::span<Array> outputs) const;
  // The same, consuming the donated inputs (CompileOptions::donated): outputs that are computed in place get their memory, and all of
  // them are left without any, so that what no output took over is free for the next call. UserError, before anything is consumed, for
  // a donated input whose memory is not the library's own, is held by another Array as well, or is given as two inputs. What was
  // consumed is gone also if the call is cancelled. The other two forms leave every input as it is, and copy instead.
  void run_donating(std::span<Array> inputs, std::span<Array> outputs) const;
  // The same into given memory (types as traced, batch axes as long as the inputs'); the pointers are not checked. An output that is
  // computed in place of a donated input may have the same pointer.
  void run_raw(void* const* inputs, void* const* outputs, std::int64_t rows) const;

  const std::vector<ValueType>& input_types() const;
  const std::vector<ValueType>& output_types() const;
  std::string explain() const;        // kernels, loops, what was merged, hoisted, deferred; bytes, flops; times
  std::string graph_text() const;     // the graph after the passes
  std::string kernel_text() const;    // the kernel IR
  const std::string& source() const;  // LLVM IR or C, with keep_source

  struct Impl;
  explicit Executable(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

Executable compile(std::shared_ptr<const Graph> graph, const CompileOptions& options = {});

// The graph compiled for inputs that stay the same over many calls: bound[i] is the value of input i, or undefined. What depends on
// bound inputs alone, the layout of weights included, is computed now; the executable takes the other inputs, in order, and keeps
// what was computed. Later changes of the bound arrays' memory do not reach it.
Executable compile_bound(std::shared_ptr<const Graph> graph, std::span<const Array> bound,
                         const CompileOptions& options = {});
// The same program with other values of what was bound, one array for each, in order: nothing is compiled, and `program` stays as it
// is. UserError for other types, and for a program without bound inputs.
Executable rebind(const Executable& program, std::span<const Array> values);

// fn compiled for each combination of argument types it meets; executables are cached in the object.
class Jit {
 public:
  explicit Jit(TracedFunction fn, CompileOptions options = {});
  std::vector<Array> operator()(std::span<const Array> inputs) const;
  std::vector<Array> operator()(std::initializer_list<Array> inputs) const {
    return (*this)(std::span(inputs.begin(), inputs.size()));
  }
  const Executable& executable(std::span<const ValueType> types) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};
// A function that names its types: what takes `auto` could be anything, and asking it whether it takes a span would compile it for one.
template <class F>
requires(detail::HasSignature<F>&& std::convertible_to<F, TracedFunction>) Jit
    jit(F&& fn, CompileOptions options = {}) {
  return Jit(TracedFunction(std::forward<F>(fn)), std::move(options));
}

// One launch of an executable, kept while recording is on: for tests that assert structure and for explain().
struct KernelRecord {
  std::string name;
  std::int64_t rows = 0;
  int num_workers = 1;
  int num_dots = 0, num_maps = 0, num_loops = 0, num_grids = 0, num_sections = 0;
  std::int64_t shared_bytes = 0, scratch_bytes = 0;
  double flops = 0, bytes = 0;
  bool flops_are_bound = false;  // a loop may end early, or runs as often as an argument says: `flops` is the most
  double time_us = 0;
  double device_us =
      0;  // of them from the launch on a device to its end, without what goes there and comes back; 0 on the processor
};
class KernelHistory {
 public:
  static void start();                      // begins recording, forgetting what was there
  static std::vector<KernelRecord> stop();  // ends it
};

}  // namespace hotloop
