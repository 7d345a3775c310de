// Backend "interp": runs a graph by the definition of each op.
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/denormals.h"
#include "core/fork.h"
#include "ir/op_def.h"
#include "runtime/engine.h"

namespace hotloop::runtime {
namespace {

class InterpEngine final : public Engine {
 public:
  InterpEngine(std::shared_ptr<const Graph> graph, std::unique_ptr<RowSpecializer> rows, bool flush_denormals)
      : graph_(std::move(graph)), rows_(std::move(rows)), flush_denormals_(flush_denormals) {}

  void run(void* const* inputs, void* const* outputs, std::int64_t rows) const override {
    const std::shared_ptr<const Graph> graph = graph_for(rows);
    const std::vector<ValueType> types = graph->input_types();
    std::vector<Array> arrays;
    for (std::size_t i = 0; i < types.size(); ++i)
      arrays.push_back(Array::wrap(types[i].dtype, types[i].shape, std::shared_ptr<void>(inputs[i], [](void*) {})));
    const DenormalsAsZero mode(flush_denormals_);
    const std::vector<Array> results = ir::evaluate(*graph, arrays);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i].bytes() > 0) std::memcpy(outputs[i], results[i].raw(), results[i].bytes());
  }

  KernelRecord describe(std::int64_t) const override {
    KernelRecord record;
    record.name = graph_->name() + " (interpreted)";
    return record;
  }
  std::string kernel_text() const override { return ""; }
  const std::string& source() const override { return source_; }

 private:
  std::shared_ptr<const Graph> graph_for(std::int64_t rows) const {
    if (!rows_) return graph_;
    const NoFork no_fork;
    const std::scoped_lock lock(mutex_);
    auto& graph = by_rows_[rows];
    if (!graph) graph = rows_->with_rows(rows);
    return graph;
  }

  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<RowSpecializer> rows_;
  bool flush_denormals_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::shared_ptr<const Graph>> by_rows_;
  std::string source_;
};

}  // namespace

std::unique_ptr<Engine> make_interp_engine(std::shared_ptr<const Graph> graph, std::unique_ptr<RowSpecializer> rows,
                                           bool flush_denormals) {
  return std::make_unique<InterpEngine>(std::move(graph), std::move(rows), flush_denormals);
}

}  // namespace hotloop::runtime
