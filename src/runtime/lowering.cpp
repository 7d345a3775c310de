#include "runtime/lowering.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/side_by_side.h"
#include "core/fork.h"
#include "hotloop/error.h"
#include "runtime/engine.h"
#include "schedule/bound_factors.h"
#include "schedule/host.h"
#include "schedule/schedule.h"
#include "transforms/bind_inputs.h"

namespace hotloop::runtime {
namespace {

void switch_off(std::vector<std::string>& disabled, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (std::ranges::find(disabled, name) == disabled.end()) disabled.emplace_back(name);
}

}  // namespace

std::string target_of(const CompileOptions& options) {
  if (options.target != "host") return options.target;
  return kernel::host_target(options.dot_precision == "bf16" && options.backend == "llvm").name;
}

kernel::Target target_for(const CompileOptions& options) {
  return options.device == "cuda" ? kernel::cuda_target()
                                  : kernel::with_caches_of_host(kernel::target_named(target_of(options)));
}

passes::PassOptions pass_options_of(const CompileOptions& options) {
  passes::PassOptions result;
  result.disabled = options.disabled_passes;
  if (options.dispatch == "per_op")
    switch_off(result.disabled, {"merge_dots", "merge_sums", "hoist", "batch_inputs", "lookup_products",
                                 "defer_products", "defer_outputs", "remat"});
  result.variable_rows = !options.batch_axes.empty();
  result.batch_axes = options.batch_axes;
  result.rounds_factors = options.dot_precision == "bf16";
  result.flush_denormals = options.flush_denormals.value_or(false);
  return result;
}

void check_input_options(const char* where, std::size_t num_inputs, const CompileOptions& options) {
  if (!options.batch_axes.empty() && options.batch_axes.size() != num_inputs)
    throw UserError(where, "batch_axes has one entry an input: " + std::to_string(num_inputs),
                    std::to_string(options.batch_axes.size()), "give -1 for inputs without a batch axis");
  for (const int input : options.donated)
    if (input < 0 || static_cast<std::size_t>(input) >= num_inputs)
      throw UserError(where, "a donated input must be one of " + std::to_string(num_inputs),
                      "input " + std::to_string(input));
}

Lowered lower(const Graph& graph, const CompileOptions& options, const kernel::Target& target, const Layouts& layouts,
              const std::function<void(const char*)>& lap) {
  Lowered result;
  result.graph = passes::optimize(graph, pass_options_of(options), &result.reports);
  if (lap) lap("passes");
  ScheduleOptions schedule_options;
  schedule_options.target = target;
  schedule_options.batch_axes = options.batch_axes;
  schedule_options.variable_rows = !options.batch_axes.empty();
  schedule_options.num_workers = target.has_blocks() ? static_cast<int>(target.blocks_worth_having) : options.threads;
  schedule_options.always_sections = always_takes_team();
  schedule_options.always_joins_tiles = always_joins_tiles();
  if (target.has_blocks()) schedule_options.most_side_by_side = cuda::side_by_side().most;
  schedule_options.donated = options.donated;
  schedule_options.layouts = layouts;
  schedule_options.flush_denormals = options.flush_denormals.value_or(false);
  result.program = schedule(*result.graph, schedule_options);
  kernel::verify(result.program);
  if (lap) lap("schedule");
  return result;
}

const Lowered& LoweredLater::get() {
  const NoFork no_fork;
  std::call_once(once_, [this] { made_ = make_(); });
  return made_;
}

CompileOptions with_sums_kept(CompileOptions options) {
  switch_off(options.disabled_passes, {"order_sums", "factor_dots", "merge_dots", "merge_sums"});
  return options;
}

BoundProgram bind_program(const char* where, const Graph& graph, std::span<const Array> bound,
                          const CompileOptions& options, const kernel::Target& target) {
  if (bound.size() != graph.inputs().size())
    throw UserError(where,
                    "one array an input, undefined where it is not bound: " + std::to_string(graph.inputs().size()),
                    std::to_string(bound.size()));
  check_input_options(where, bound.size(), options);
  passes::PassOptions pass_options = pass_options_of(options);
  std::vector<Array> arrays;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    pass_options.bound.push_back(bound[i].defined());
    if (!bound[i].defined()) continue;
    const ValueType& wanted = graph.inputs()[i].type();
    if (bound[i].type() != wanted)
      throw UserError(where, "input " + std::to_string(i) + " must be " + wanted.str(), bound[i].type().str());
    if (!options.batch_axes.empty() && options.batch_axes[i] >= 0)
      throw UserError(where, "an input with a batch axis cannot be bound", "input " + std::to_string(i));
    if (std::ranges::find(options.donated, static_cast<int>(i)) != options.donated.end())
      throw UserError(where, "an input is bound or donated, not both", "input " + std::to_string(i));
    arrays.push_back(bound[i]);
  }
  const bool rounds = pass_options.rounds_factors;
  ir::FactorLayouts layouts;
  if (options.backend != "interp" && options.dispatch == "fused")
    layouts = [&](const ir::BoundFactor& factor) { return bound_layout(target, factor, rounds); };
  pass_options.rounds_factors = false;  // where the graphs are compiled
  const ir::BoundGraphs cut = ir::bind_inputs(*passes::optimize(graph, pass_options), pass_options.bound, layouts);
  CompileOptions prepare_options = options;
  prepare_options.batch_axes.clear();
  prepare_options.donated.clear();
  prepare_options.device = "cpu";
  if (options.target != "host" && !kernel::host_runs(options.target)) {  // an export for other machines
    prepare_options.target = "host";
    prepare_options.backend = "interp";
  }
  const Executable prepare = compile(cut.prepare, prepare_options);
  return {cut.run, cut.layouts, cut.prepare, prepare, prepare(arrays)};
}

}  // namespace hotloop::runtime
