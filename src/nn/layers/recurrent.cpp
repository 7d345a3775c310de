#include "nn/recurrent.h"

#include "hotloop/ops.h"

namespace hotloop::nn {
namespace {

class RecurrentModule : public BuiltInModule {
 public:
  explicit RecurrentModule(std::shared_ptr<const Cell> cell) : cell_(std::move(cell)) {}

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override { return cell_->init(seed, dtype, init); }
  Value apply(const Tree<Value>& params, Value x, Context& context) const override {
    return run_over_time(*cell_, params, x, context);
  }
  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return cell_->initial_state(batch, dtype);
  }

 private:
  std::shared_ptr<const Cell> cell_;
};

}  // namespace

Recurrent::Recurrent(std::shared_ptr<const Cell> cell)
    : Layer(std::make_shared<const RecurrentModule>(std::move(cell))) {}

// A cell is code, so that a configuration cannot name it.
std::vector<LayerDef> layers_recurrent() { return {}; }

}  // namespace hotloop::nn
