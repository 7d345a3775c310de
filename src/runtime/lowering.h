// The one way from a graph to kernel IR: passes, schedule, verifier.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/jit.h"
#include "passes/pipeline.h"
#include "schedule/kernel_ir.h"
#include "transforms/factor_layout.h"

namespace hotloop::runtime {

// The name of the target that such programs are compiled for on the processor, where options.target is "host" as well.
std::string target_of(const CompileOptions& options);

// What programs with these options are scheduled for: a CUDA device, or the processor and what is known of its caches.
kernel::Target target_for(const CompileOptions& options);

// With dispatch "per_op" the passes that merge, move or reorder ops are off too.
passes::PassOptions pass_options_of(const CompileOptions& options);

// UserError of `where` unless what `options` says of inputs fits as many as there are.
void check_input_options(const char* where, std::size_t num_inputs, const CompileOptions& options);

struct Lowered {
  std::shared_ptr<const Graph> graph;  // after the passes
  kernel::Program program;
  std::vector<passes::PassReport> reports;
};
using Layouts = std::vector<ir::FactorLayout>;  // of a graph's inputs, which the program takes so; empty: none has one
// Of `options`: threads, batch_axes, disabled_passes. `lap` is told when a stage ends.
Lowered lower(const Graph& graph, const CompileOptions& options, const kernel::Target& target,
              const Layouts& layouts = {}, const std::function<void(const char*)>& lap = {});

// The same, made when somebody asks for it, once; by one of them if several do at once.
class LoweredLater {
 public:
  explicit LoweredLater(std::function<Lowered()> make) : make_(std::move(make)) {}
  const Lowered& get();

 private:
  std::function<Lowered()> make_;
  std::once_flag once_;
  Lowered made_;
};

// compile() of what takes some inputs in layouts.
Executable compile_laid_out(std::shared_ptr<const Graph> graph, const CompileOptions& options, const Layouts& layouts);

// What compile_bound() and the exporter start from: the program that is left when the bound inputs are worked in, and the arrays it
// takes after the inputs that are not bound, laid out for `target`. `options.batch_axes` has an entry for each input of `graph`, or none; `where` names the
// caller in errors.
struct BoundProgram {
  std::shared_ptr<const Graph> run;
  Layouts layouts;  // of its inputs
  std::shared_ptr<const Graph> prepare_graph;
  Executable prepare;  // the same compiled: (what is bound...) -> what `prepared` holds
  std::vector<Array> prepared;
};
// Options for `run`: its products and sums stay what they are by now. They tell of loops that are gone, and a step alone is that step of a loop to
// the bit.
CompileOptions with_sums_kept(CompileOptions options);
BoundProgram bind_program(const char* where, const Graph& graph, std::span<const Array> bound,
                          const CompileOptions& options, const kernel::Target& target);

}  // namespace hotloop::runtime
