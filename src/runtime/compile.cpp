// compile(): the whole pipeline, from a graph to an Executable, and the cache of executables in memory.
#include <algorithm>
#include <chrono>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/nearest.h"
#include "hotloop/error.h"
#include "ir/op_def.h"
#include "runtime/executable.h"
#include "runtime/thread_team.h"
#include "schedule/kernel_ir.h"

namespace hotloop {
namespace {

void check_choice(const char* what, const std::string& given, const std::vector<std::string>& choices) {
  if (std::ranges::find(choices, given) != choices.end()) return;
  std::string list;
  for (const std::string& c : choices) list += (list.empty() ? "" : ", ") + c;
  throw UserError("compile", std::string(what) + " must be one of " + list, "'" + given + "'",
                  nearest_hint(given, choices));
}

// The options with every default made explicit, so that they can be a cache key.
CompileOptions resolved(const Graph& graph, CompileOptions options) {
  check_choice("device", options.device, {"auto", "cpu"});
  options.device = "cpu";
  check_choice("backend", options.backend, {"llvm", "c", "interp"});
  check_choice("target", options.target, {"host", "avx512", "avx2", "portable"});
  if (options.target == "host") options.target = kernel::host_target().name;
  if (options.threads < 0)
    throw UserError("compile", "threads must not be negative", std::to_string(options.threads), "0 for all cores");
  if (options.threads == 0) options.threads = runtime::num_cores();
  if (options.backend == "interp") options.threads = 1;
  if (!options.batch_axes.empty() && options.batch_axes.size() != graph.inputs().size())
    throw UserError("compile", "batch_axes has one entry an input: " + std::to_string(graph.inputs().size()),
                    std::to_string(options.batch_axes.size()), "give -1 for inputs without a batch axis");
  if (std::ranges::all_of(options.batch_axes, [](int axis) { return axis < 0; })) options.batch_axes.clear();
  std::int64_t rows = -1;
  for (std::size_t i = 0; i < options.batch_axes.size(); ++i) {
    const int axis = options.batch_axes[i];
    if (axis < 0) continue;
    const ValueType& type = graph.inputs()[i].type();
    if (axis >= type.shape.rank())
      throw UserError("compile", "the batch axis must be an axis of input " + std::to_string(i),
                      "axis " + std::to_string(axis) + " of " + type.str());
    if (rows < 0) rows = type.shape[axis];
    if (type.shape[axis] != rows)
      throw UserError("compile", "all batch axes have one extent", std::to_string(rows) + " and " + type.str());
  }
  for (int d : options.donated)
    if (d < 0 || d >= static_cast<int>(graph.inputs().size()))
      throw UserError("compile", "a donated input must exist", std::to_string(d),
                      "inputs are 0 to " + std::to_string(graph.inputs().size() - 1));
  std::ranges::sort(options.donated);
  std::ranges::sort(options.disabled_passes);
  return options;
}

std::string key_of(const std::string& graph_text, const CompileOptions& o) {
  std::string key = o.backend + " " + o.target + " " + std::to_string(o.threads) + (o.keep_source ? " source" : "");
  for (int a : o.batch_axes) key += " b" + std::to_string(a);
  for (int d : o.donated) key += " d" + std::to_string(d);
  for (const std::string& p : o.disabled_passes) key += " -" + p;
  return key + "\n" + graph_text;
}

// The most recently used executables of this process.
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
      entries_.pop_back();
    }
  }

 private:
  static constexpr std::size_t max_entries = 128;
  using Entries = std::list<std::pair<std::string, std::shared_ptr<Executable::Impl>>>;
  std::mutex mutex_;
  Entries entries_;  // most recent first
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

double total_bytes(const std::vector<ValueType>& types) {
  double bytes = 0;
  for (const ValueType& t : types) bytes += static_cast<double>(t.shape.size()) * static_cast<double>(size_of(t.dtype));
  return bytes;
}

std::shared_ptr<Executable::Impl> build(std::shared_ptr<const Graph> graph, const CompileOptions& options) {
  auto impl = std::make_shared<Executable::Impl>();
  impl->options = options;
  impl->inputs = graph->input_types();
  impl->outputs = graph->output_types();
  for (std::size_t i = 0; i < options.batch_axes.size(); ++i)
    if (const int axis = options.batch_axes[i]; axis >= 0) impl->max_rows = impl->inputs[i].shape[axis];
  Stopwatch watch(impl->stages);
  ir::verify(*graph);
  watch.lap("verify");
  if (options.backend != "interp")
    throw UserError("compile", "the backend must be part of this build", "'" + options.backend + "'",
                    "backend=\"interp\"");
  impl->graph = graph;
  impl->engine = runtime::make_interp_engine(graph, options.batch_axes);
  watch.lap("interp");
  for (const auto& node : impl->graph->nodes()) impl->flops += ir::estimate_flops(*node);
  impl->bytes = total_bytes(impl->inputs) + total_bytes(impl->outputs);
  return impl;
}

}  // namespace

Executable compile(std::shared_ptr<const Graph> graph, const CompileOptions& given) {
  HOTLOOP_CHECK(graph != nullptr, "compile: a graph");
  const CompileOptions options = resolved(*graph, given);
  const std::string key = key_of(graph->str(), options);
  if (std::shared_ptr<Executable::Impl> found = memory_cache().find(key)) return Executable(std::move(found));
  std::shared_ptr<Executable::Impl> impl = build(std::move(graph), options);
  memory_cache().insert(key, impl);
  return Executable(std::move(impl));
}

}  // namespace hotloop
