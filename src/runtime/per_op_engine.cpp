// dispatch "per_op": launches one kernel an op.
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/fork.h"
#include "runtime/engine.h"
#include "runtime/per_op_plan.h"

namespace hotloop::runtime {
namespace {

class PerOpEngine final : public Engine {
 public:
  PerOpEngine(std::shared_ptr<const Graph> graph, std::unique_ptr<RowSpecializer> rows, CompileOptions options,
              std::int64_t max_rows)
      : graph_(std::move(graph)), rows_(std::move(rows)), options_(std::move(options)), max_rows_(max_rows) {
    plan_for(max_rows_);
  }

  void run(void* const* inputs, void* const* outputs, std::int64_t rows) const override {
    const std::shared_ptr<const Plan> plan = plan_for(rows);
    static char nothing;  // where an input without elements lies
    std::vector<Array> arrays;
    for (std::size_t i = 0; i < plan->inputs.size(); ++i) {
      void* memory = inputs[i] != nullptr ? inputs[i] : &nothing;
      arrays.push_back(Array::wrap(plan->inputs[i].dtype, plan->inputs[i].shape,
                                   std::shared_ptr<void>(std::shared_ptr<void>(), memory)));
    }
    const std::vector<Array> results = plan->plan.run(arrays);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i].bytes() > 0) std::memcpy(outputs[i], results[i].raw(), results[i].bytes());
  }

  KernelRecord describe(std::int64_t) const override {
    KernelRecord record;
    record.name = graph_->name() + " (op by op)";
    record.num_workers = options_.threads;
    return record;
  }
  bool launches_others() const override { return true; }
  std::string structure() const override {
    const PerOpPlan::Counts counts = plan_for(max_rows_)->plan.counts();
    return std::to_string(counts.kernels) + " kernels, one an op; " + std::to_string(counts.launches) +
           " launches a call; views read in place: " + std::to_string(counts.views) +
           "; loops run by the host (dispatch per_op, as frameworks do that run op by op)";
  }
  std::string kernel_text() const override { return ""; }
  const std::string& source() const override { return source_; }

 private:
  struct Plan {
    Plan(const std::shared_ptr<const Graph>& graph, const CompileOptions& options)
        : inputs(graph->input_types()), plan(graph, options) {}
    std::vector<ValueType> inputs;
    PerOpPlan plan;
  };

  std::shared_ptr<const Plan> plan_for(std::int64_t rows) const {
    if (!rows_) rows = max_rows_;
    const NoFork no_fork;
    const std::scoped_lock lock(mutex_);
    auto& plan = by_rows_[rows];
    if (!plan) plan = std::make_shared<Plan>(rows_ ? rows_->with_rows(rows) : graph_, options_);
    return plan;
  }

  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<RowSpecializer> rows_;
  CompileOptions options_;
  std::int64_t max_rows_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::shared_ptr<const Plan>> by_rows_;
  std::string source_;
};

}  // namespace

std::unique_ptr<Engine> make_per_op_engine(std::shared_ptr<const Graph> graph, std::unique_ptr<RowSpecializer> rows,
                                           CompileOptions options, std::int64_t max_rows) {
  return std::make_unique<PerOpEngine>(std::move(graph), std::move(rows), std::move(options), max_rows);
}

}  // namespace hotloop::runtime
