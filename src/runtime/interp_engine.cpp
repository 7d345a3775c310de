// Backend "interp": runs a graph by the definition of each op.
#include <cstring>
#include <utility>

#include "ir/op_def.h"
#include "runtime/engine.h"

namespace hotloop::runtime {
namespace {

class InterpEngine final : public Engine {
 public:
  InterpEngine(std::shared_ptr<const Graph> graph, std::vector<int> batch_axes)
      : graph_(std::move(graph)), batch_axes_(std::move(batch_axes)) {}

  void run(void* const* inputs, void* const* outputs, std::int64_t) const override {
    std::vector<Array> arrays;
    const std::vector<ValueType> types = graph_->input_types();
    for (std::size_t i = 0; i < types.size(); ++i)
      arrays.push_back(Array::wrap(types[i].dtype, types[i].shape, std::shared_ptr<void>(inputs[i], [](void*) {})));
    const std::vector<Array> results = ir::evaluate(*graph_, arrays);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i].bytes() > 0) std::memcpy(outputs[i], results[i].raw(), results[i].bytes());
  }

  KernelRecord describe() const override {
    KernelRecord record;
    record.name = graph_->name() + " (interpreted)";
    return record;
  }
  std::string kernel_text() const override { return ""; }
  const std::string& source() const override { return source_; }

 private:
  std::shared_ptr<const Graph> graph_;
  std::vector<int> batch_axes_;
  std::string source_;
};

}  // namespace

std::unique_ptr<Engine> make_interp_engine(std::shared_ptr<const Graph> graph, std::vector<int> batch_axes) {
  return std::make_unique<InterpEngine>(std::move(graph), std::move(batch_axes));
}

}  // namespace hotloop::runtime
