// compile(): the whole pipeline, from a graph to an Executable, and the cache of executables in memory.
#include <algorithm>
#include <chrono>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "backends/cuda/device.h"
#include "backends/cuda/side_by_side.h"
#include "core/denormals.h"
#include "core/fork.h"
#include "core/memory.h"
#include "core/nearest.h"
#include "hotloop/error.h"
#include "hotloop/fixed_rows.h"
#include "ir/arithmetic.h"
#include "ir/op_def.h"
#include "passes/pipeline.h"
#include "runtime/cache_dir.h"
#include "runtime/choose_device.h"
#include "runtime/cuda_engine.h"
#include "runtime/executable.h"
#include "runtime/kept_programs.h"
#include "runtime/lowering.h"
#include "runtime/thread_team.h"
#include "schedule/host.h"

namespace hotloop {
namespace {

void check_choice(const char* what, const std::string& given, const std::vector<std::string>& choices) {
  if (std::ranges::find(choices, given) != choices.end()) return;
  std::string list;
  for (const std::string& c : choices) list += (list.empty() ? "" : ", ") + c;
  throw UserError("compile", std::string(what) + " must be one of " + list, "'" + given + "'",
                  nearest_hint(given, choices));
}

// Whether a loop of several steps runs from the last to the first.
bool runs_backwards(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const auto& node) {
    if (ir::is(*node, ir::OpKind::Loop) && node->attrs.flag("reverse") && node->attrs.integer("length") > 1)
      return true;
    return std::ranges::any_of(node->regions, [](const auto& region) { return runs_backwards(*region); });
  });
}

// The options with every default made explicit, so that they can be a cache key.
CompileOptions resolved(const Graph& graph, CompileOptions options) {
  if (options.device == "gpu" || options.device.starts_with("cuda:"))
    throw UserError("compile", "device must be one of auto, cpu, cuda", "'" + options.device + "'",
                    "cuda, which is the first CUDA device");
  check_choice("device", options.device, {"auto", "cpu", "cuda"});
  if (options.device == "auto" &&
      (options.dispatch != "fused" || options.backend != "llvm" || options.target != "host"))
    options.device = "cpu";
  check_choice("backend", options.backend, {"llvm", "c", "interp"});
  check_choice("dispatch", options.dispatch, {"fused", "per_op"});
  if (options.dot_precision == "bfloat16")
    throw UserError("compile", "dot_precision must be one of f32, bf16", "'bfloat16'", "bf16");
  check_choice("dot_precision", options.dot_precision, {"f32", "bf16"});
  if (!options.flush_denormals) options.flush_denormals = DenormalsAsZero::is_possible && runs_backwards(graph);
  if (*options.flush_denormals && !DenormalsAsZero::is_possible)
    throw UserError("compile", "flush_denormals needs a processor that can", "neither x86-64 nor AArch64",
                    "leaving it out");
  if (options.dispatch == "per_op" && options.backend == "interp")
    throw UserError("compile", "dispatch per_op compiles its ops, which the interpreter does not", "backend interp",
                    "backend llvm or c");
  std::vector<std::string> targets = kernel::target_names();
  targets.insert(targets.begin(), "host");
  check_choice("target", options.target, targets);
  if (options.device == "cuda") {
    if (options.dispatch != "fused" || options.backend != "llvm" || options.target != "host")
      throw UserError("compile", "device cuda takes neither dispatch nor backend nor target",
                      options.dispatch + ", " + options.backend + ", " + options.target, "leave them out");
    if (std::string why; cuda::find_device(&why) == nullptr)
      throw UserError("compile", "device cuda needs a CUDA device", why, "device=\"auto\" or \"cpu\"");
    options.backend = options.target = "cuda";
  }
  options.target = runtime::target_of(options);
  if (options.target == "amx" && options.backend == "c")
    throw UserError("compile", "backend c has no instructions of the target", options.target, "target host");
  if (options.device != "cuda" && !kernel::host_runs(options.target))
    throw UserError("compile", "this machine must have the instructions of the target", options.target, "target host");
  if (options.threads < 0)
    throw UserError("compile", "threads must not be negative", std::to_string(options.threads), "0 for all cores");
  if (options.threads == 0) options.threads = std::min(runtime::num_cores(), runtime::ThreadTeam::max_workers);
  if (options.backend == "interp") options.threads = 1;
  runtime::check_input_options("compile", graph.inputs().size(), options);
  if (std::ranges::all_of(options.batch_axes, [](int axis) { return axis < 0; })) options.batch_axes.clear();
  std::int64_t rows = -1;
  for (std::size_t i = 0; i < options.batch_axes.size(); ++i) {
    const int axis = options.batch_axes[i];
    if (axis < 0) continue;
    const ValueType& type = graph.inputs()[i].type();
    if (axis >= type.shape.rank())
      throw UserError("compile", "the batch axis must be an axis of input " + std::to_string(i),
                      "axis " + std::to_string(axis) + " of " + type.str(), "-1 for an input without a batch axis");
    if (rows < 0) rows = type.shape[axis];
    if (type.shape[axis] != rows)
      throw UserError("compile", "all batch axes have one extent", std::to_string(rows) + " and " + type.str());
  }
  std::ranges::sort(options.donated);
  options.donated.erase(std::ranges::unique(options.donated).begin(), options.donated.end());
  std::ranges::sort(options.disabled_passes);
  return options;
}

// Of all that a program depends on in one process, in memory and on disk.
std::string key_of(const std::string& graph_text, const CompileOptions& o, const runtime::Layouts& layouts) {
  std::string key =
      o.device + " " + o.backend + " " + o.target + " " + std::to_string(o.threads) + (o.keep_source ? " source" : "") +
      (o.dispatch == "fused" ? "" : " " + o.dispatch) + (o.dot_precision == "f32" ? "" : " " + o.dot_precision) +
      (o.flush_denormals.value_or(false) ? " flush_denormals" : "") +
      (runtime::always_takes_team() ? " always team" : "") + (runtime::always_joins_tiles() ? " joined tiles" : "");
  if (o.device != "cpu") {
    const auto [most, always] = cuda::side_by_side();
    key += " on " + cuda::device_key() + (always ? " always " : " ") + std::to_string(most);
  }
  for (int a : o.batch_axes) key += " b" + std::to_string(a);
  for (int i : o.donated) key += " d" + std::to_string(i);
  for (std::size_t i = 0; i < layouts.size(); ++i)
    if (const ir::FactorLayout& l = layouts[i])
      key += " l" + std::to_string(i) + "," + std::to_string(l.panel) + "," + std::to_string(l.half) + "," +
             std::to_string(l.lanes);
  for (const std::string& p : o.disabled_passes) key += " -" + p;
  return key + "\n" + graph_text;
}

// The most recently used executables of this process. To be used inside a NoFork.
class MemoryCache {
 public:
  std::shared_ptr<Executable::Impl> find(const std::string& key) {
    const std::scoped_lock lock(mutex_);
    const auto it = index_.find(key);
    if (it == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, it->second);
    return it->second->second;
  }
  void insert(const std::string& key, std::shared_ptr<Executable::Impl> impl) {
    const std::scoped_lock lock(mutex_);
    if (index_.contains(key)) return;
    entries_.emplace_front(key, std::move(impl));
    index_[entries_.front().first] = entries_.begin();
    if (entries_.size() > max_entries) {
      index_.erase(entries_.back().first);
      dropped_.splice(dropped_.end(), entries_, std::prev(entries_.end()));
    }
  }
  using Entries = std::list<std::pair<std::string, std::shared_ptr<Executable::Impl>>>;
  // What insert() left out, to be let go of outside of any NoFork: its arrays may be Python's, whose lock a forking thread holds.
  Entries take_dropped() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(dropped_, {});
  }

 private:
  static constexpr std::size_t max_entries = 128;
  std::mutex mutex_;
  Entries entries_, dropped_;                                      // most recent first
  std::unordered_map<std::string_view, Entries::iterator> index_;  // views into entries_
};

MemoryCache& memory_cache() {
  static MemoryCache& cache = *new MemoryCache;
  return cache;
}

class Stopwatch {
 public:
  explicit Stopwatch(std::vector<runtime::StageTime>& stages) : stages_(stages) {}
  void lap(const char* name) {
    const auto now = std::chrono::steady_clock::now();
    stages_.push_back({name, std::chrono::duration<double, std::milli>(now - start_).count()});
    start_ = now;
  }

 private:
  std::vector<runtime::StageTime>& stages_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What the passes did, in a few lines: those that changed something, and those that say why they did not.
std::vector<std::string> summary_of(const std::vector<passes::PassReport>& reports) {
  std::vector<std::string> lines;
  std::string changed;
  double time_us = 0;
  for (const passes::PassReport& r : reports) {
    time_us += r.time_us;
    if (r.changed)
      changed += (changed.empty() ? "" : ", ") + r.name + " " + std::to_string(r.nodes_before) + " -> " +
                 std::to_string(r.nodes_after);
    else if (!r.note.empty())
      lines.push_back(r.name + ": " + r.note);
  }
  lines.insert(lines.begin(), changed.empty() ? "none changed anything" : "nodes: " + changed);
  return lines;
}

std::unique_ptr<runtime::Engine> build_interpreter(Executable::Impl& impl, std::shared_ptr<const Graph> graph,
                                                   Stopwatch& watch) {
  std::unique_ptr<runtime::RowSpecializer> rows;
  passes::PassOptions options = runtime::pass_options_of(impl.options);
  options.disabled = {"all"};
  if (options.variable_rows || options.rounds_factors) graph = passes::optimize(*graph, options);
  impl.take_facts(graph);
  if (options.variable_rows) {  // calls hide axes; the pass that inlines them is not optional
    rows = std::make_unique<runtime::RowSpecializer>(*graph, impl.options.batch_axes);
    impl.program.output_batch_axes = rows->output_axes();
  }
  watch.lap("rows");
  return runtime::make_interp_engine(std::move(graph), std::move(rows), impl.options.flush_denormals.value_or(false));
}

std::unique_ptr<runtime::Engine> build_cuda_engine(const Executable::Impl& impl, kernel::Program program,
                                                   const BackendOptions& backend_options) {
  std::string why;
  cuda::Device* device = cuda::find_device(&why);
  HOTLOOP_CHECK(device != nullptr, why);
  const std::vector<int>& input_axes = impl.options.batch_axes;
  const auto has_rows = [](const std::vector<int>& axes, std::size_t i) { return i < axes.size() && axes[i] >= 0; };
  runtime::RowsOf rows;
  for (std::size_t i = 0; i < impl.inputs.size(); ++i) rows.inputs.push_back(has_rows(input_axes, i));
  for (std::size_t i = 0; i < impl.outputs.size(); ++i)
    rows.outputs.push_back(has_rows(impl.program.output_batch_axes, i));
  return runtime::make_cuda_engine(std::move(program), *device, backend_options, std::move(rows), input_axes.empty());
}

// What is to be built, as compile() was given it.
struct Request {
  std::shared_ptr<const Graph> graph;
  const CompileOptions& options;
  const runtime::Layouts& layouts;
  const std::string& graph_text;
};

BackendOptions backend_options_of(const CompileOptions& options) {
  BackendOptions result;
  result.keep_source = options.keep_source;
  result.compile_threads = runtime::num_cores();
  result.cache_dir = runtime::disk_cache_dir();
  result.cache_bytes = runtime::disk_cache_bytes();
  return result;
}

// Where the disk cache has what becomes of the request on the processor; nothing where it never has that.
std::optional<std::string> kept_key_of(const Request& request, const BackendOptions& backend_options) {
  CompileOptions options = request.options;
  if (options.device == "cuda" || options.backend != "llvm" || options.keep_source || backend_options.cache_dir.empty())
    return std::nullopt;
  options.device = "cpu";
  return runtime::kept_key(key_of(request.graph_text, options, request.layouts), runtime::target_for(options));
}

// From the disk cache, or nothing.
std::unique_ptr<runtime::Engine> load_kernel(Executable::Impl& impl, const Request& request,
                                             const codegen::ObjectCache& cache, const std::string& key,
                                             const BackendOptions& backend_options) {
  std::optional<runtime::KeptProgram> kept = runtime::find_kept(cache, key);
  if (!kept) return nullptr;
  CompileOptions& options = impl.options;
  if (options.device == "auto" && runtime::has_choice_of_device(kept->plan.call_ns)) return nullptr;
  std::unique_ptr<CompiledKernel> kernel = load_llvm(kept->code, backend_options);
  if (!kernel) return nullptr;
  options.device = "cpu";
  if (kept->plan.fixed_rows) options.batch_axes.clear();  // it was found that rows depend on each other
  impl.program = std::move(kept->facts);
  const auto lowered =
      std::make_shared<runtime::LoweredLater>([graph = request.graph, options, layouts = request.layouts] {
        return runtime::lower(*graph, options, runtime::target_for(options), layouts);
      });
  impl.graph_text = [lowered] { return lowered->get().graph->str(); };
  return runtime::make_kernel_engine(std::move(kept->plan), std::move(kernel), [lowered] {
    return std::shared_ptr<const kernel::Program>(lowered, &lowered->get().program);
  });
}

std::unique_ptr<runtime::Engine> build_kernel(Executable::Impl& impl, const Request& request, Stopwatch& watch) {
  CompileOptions& options = impl.options;
  const Graph& graph = *request.graph;
  const BackendOptions backend_options = backend_options_of(options);
  const codegen::ObjectCache cache(backend_options.cache_dir, backend_options.cache_bytes);
  const std::optional<std::string> key = kept_key_of(request, backend_options);
  if (key) {
    auto engine = load_kernel(impl, request, cache, *key, backend_options);
    watch.lap(engine ? "program (from the cache)" : "cache");
    if (engine) return engine;
  }
  runtime::Lowered lowered = runtime::lower(graph, options, runtime::target_for(options), request.layouts,
                                            [&](const char* stage) { watch.lap(stage); });
  const auto take = [&](const runtime::Lowered& chosen) {
    impl.take_facts(chosen.graph);
    impl.program.in_place = chosen.program.in_place;
    impl.program.pass_lines = summary_of(chosen.reports);
    if (!options.batch_axes.empty())
      impl.program.output_batch_axes = runtime::RowSpecializer(*chosen.graph, options.batch_axes).output_axes();
    watch.lap("rows");
  };
  const auto on_device = [&](runtime::Lowered chosen) {
    take(chosen);
    auto engine = build_cuda_engine(impl, std::move(chosen.program), backend_options);
    watch.lap("code");
    return engine;
  };
  if (options.device == "cuda") return on_device(std::move(lowered));
  runtime::RunPlan plan = runtime::plan_run(lowered.program, options.threads, options.batch_axes.empty());
  if (options.device == "auto") {
    options.device = "cpu";
    runtime::DeviceChoice choice = runtime::choose_device(graph, options, plan.call_ns);
    impl.device_choice = std::move(choice.why);
    if (!impl.device_choice.empty()) watch.lap("device");
    if (choice.on_device) try {
        auto engine = on_device(std::move(*choice.on_device));
        options.device = options.backend = options.target = "cuda";
        return engine;
      } catch (const UserError& error) {  // of the device; the processor can do it
        impl.device_choice = std::string("cpu, since the device cannot: ") + error.what();
      }
  }
  take(lowered);
  std::unique_ptr<CompiledKernel> kernel = options.backend == "c" ? compile_c(lowered.program, backend_options)
                                                                  : compile_llvm(lowered.program, backend_options);
  if (key && !kernel->cache_entry.empty()) runtime::keep(cache, *key, {impl.program, plan, kernel->cache_entry});
  watch.lap(kernel->from_cache ? "code (from the cache)" : "code");
  const auto program = std::make_shared<const kernel::Program>(std::move(lowered.program));
  return runtime::make_kernel_engine(std::move(plan), std::move(kernel), [program] { return program; });
}

std::unique_ptr<runtime::Engine> build_per_op(Executable::Impl& impl, const Graph& graph, Stopwatch& watch) {
  const CompileOptions& options = impl.options;
  std::vector<passes::PassReport> reports;
  const std::shared_ptr<const Graph> optimized = passes::optimize(graph, runtime::pass_options_of(options), &reports);
  impl.take_facts(optimized);
  impl.program.pass_lines = {summary_of(reports).front()};  // without those that this dispatch leaves out
  watch.lap("passes");
  std::unique_ptr<runtime::RowSpecializer> rows;
  if (!options.batch_axes.empty()) {
    rows = std::make_unique<runtime::RowSpecializer>(*optimized, options.batch_axes);
    impl.program.output_batch_axes = rows->output_axes();
  }
  CompileOptions of_op = options;
  of_op.dispatch = "fused";
  of_op.batch_axes.clear();
  of_op.donated.clear();
  of_op.keep_source = false;
  auto engine = runtime::make_per_op_engine(optimized, std::move(rows), std::move(of_op), impl.max_rows);
  watch.lap("ops");
  return engine;
}

std::shared_ptr<Executable::Impl> build(const Request& request, const CompileOptions& options) {
  const Graph& graph = *request.graph;
  auto impl = std::make_shared<Executable::Impl>();
  impl->options = options;
  impl->inputs = graph.input_types();
  for (std::size_t i = 0; i < request.layouts.size(); ++i)
    if (const ir::FactorLayout& layout = request.layouts[i]) impl->inputs[i] = layout.type(impl->inputs[i]);
  impl->outputs = graph.output_types();
  for (std::size_t i = 0; i < options.batch_axes.size(); ++i)
    if (const int axis = options.batch_axes[i]; axis >= 0) impl->max_rows = impl->inputs[i].shape[axis];
  impl->bytes = total_bytes(impl->inputs) + total_bytes(impl->outputs);
  Stopwatch watch(impl->stages);
  ir::verify(graph);
  watch.lap("verify");
  impl->engine = options.backend == "interp"    ? build_interpreter(*impl, request.graph, watch)
                 : options.dispatch == "per_op" ? build_per_op(*impl, graph, watch)
                                                : build_kernel(*impl, request, watch);
  return impl;
}

std::shared_ptr<Executable::Impl> build(const Request& request) {
  try {
    return build(request, request.options);
  } catch (const NeedsFixedRows&) {
    // A batch of one row has no other number of rows: what couples rows is no hindrance there.
    CompileOptions fixed = request.options;
    for (std::size_t i = 0; i < fixed.batch_axes.size(); ++i)
      if (const int axis = fixed.batch_axes[i]; axis >= 0 && request.graph->inputs()[i].shape()[axis] != 1) throw;
    fixed.batch_axes.clear();
    return build(request, fixed);
  }
}

}  // namespace

Executable compile(std::shared_ptr<const Graph> graph, const CompileOptions& options) {
  return runtime::compile_laid_out(std::move(graph), options, {});
}

Executable runtime::compile_laid_out(std::shared_ptr<const Graph> graph, const CompileOptions& given,
                                     const Layouts& layouts) {
  if (graph == nullptr)
    throw UserError("compile", "there must be a graph to compile", "a null pointer", "trace(function, types)");
  const CompileOptions options = resolved(*graph, given);
  const std::string graph_text = ir::print_without_rules(*graph);
  const std::string key = key_of(graph_text, options, layouts);
  MemoryCache::Entries dropped;  // outlives what stands below
  const NoFork no_fork;
  if (std::shared_ptr<Executable::Impl> found = memory_cache().find(key)) return Executable(std::move(found));
  std::shared_ptr<Executable::Impl> impl = build({std::move(graph), options, layouts, graph_text});
  memory_cache().insert(key, impl);
  if (no_fork.is_outermost()) dropped = memory_cache().take_dropped();
  return Executable(std::move(impl));
}

}  // namespace hotloop
