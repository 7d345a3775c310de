// Engine: what stands behind an Executable. One runs compiled kernel IR, the other interprets the graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "hotloop/jit.h"
#include "runtime/row_specializer.h"
#include "runtime/run_plan.h"

namespace hotloop::runtime {

struct StageTime {
  std::string name;
  double time_ms;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // One pointer an input and an output; `rows` is the number of batch rows.
  virtual void run(void* const* inputs, void* const* outputs, std::int64_t rows) const = 0;
  // Runs with memory of its owner's alone, so that nothing is taken and given back: for steps of some tens of nanoseconds. For one
  // thread at a time; the engine must outlive it. It goes to its end, whatever is cancelled: what it writes over is needed for the next.
  class Seat {
   public:
    virtual ~Seat() = default;
    virtual void run(void* const* inputs, void* const* outputs, std::int64_t rows) = 0;
  };
  virtual std::unique_ptr<Seat> seat() const;
  // Structure, for KernelHistory and explain(), of a run of so many rows; flops, bytes and time_us are the caller's.
  virtual KernelRecord describe(std::int64_t rows) const = 0;
  virtual std::string kernel_text() const = 0;
  // Its runs by one worker, as they are and with clocks, which `kernel` has. Of kernels of the llvm backend; compiles one.
  struct Clocked {
    std::shared_ptr<const CompiledKernel> kernel;
    std::unique_ptr<Engine> with_clocks, without;
  };
  virtual Clocked clocked() const;
  virtual const std::string& source() const = 0;
  // Whether a run launches executables, which record themselves.
  virtual bool launches_others() const { return false; }
  // In place of the numbers of describe(), for explain(); empty: those.
  virtual std::string structure() const { return ""; }
  // Which device runs it and how it is shared out there, for explain(); empty: the processor.
  virtual std::string device() const { return ""; }
  // How many workers run what, and why, for explain(); empty: nothing to say.
  virtual std::string workers() const { return ""; }
  // Through how many slots rows stream that need different numbers of iterations, for explain(); 0 where none do.
  virtual std::int64_t slots() const { return 0; }
};

// HOTLOOP_TEAM=always, for tests of what several workers do with little work: all of them take part, whatever the cost model says.
bool always_takes_team();
// HOTLOOP_TILES=joined, likewise for tests: tiles take as many rows as they do where weights are large.
bool always_joins_tiles();

// `rows`: absent when the number of rows is fixed.
std::unique_ptr<Engine> make_interp_engine(std::shared_ptr<const Graph> graph, std::unique_ptr<RowSpecializer> rows,
                                           bool flush_denormals);
// `options`: of each op's kernel.
std::unique_ptr<Engine> make_per_op_engine(std::shared_ptr<const Graph> graph, std::unique_ptr<RowSpecializer> rows,
                                           CompileOptions options, std::int64_t max_rows);
// Each run takes as many workers as the plan says. `program` gives the kernel IR, to whoever asks for it.
using KernelProgram = std::function<std::shared_ptr<const kernel::Program>()>;
std::unique_ptr<Engine> make_kernel_engine(RunPlan plan, std::shared_ptr<const CompiledKernel> kernel,
                                           KernelProgram program);

}  // namespace hotloop::runtime
