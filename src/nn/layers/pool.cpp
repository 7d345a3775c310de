#include <limits>
#include <utility>

#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

// Over time: `whole` of x (B, T, ...), or `valid` of x and a mask of its shape.
class PoolModule : public BuiltInModule {
 public:
  PoolModule(std::string name, Value (*whole)(Value), Value (*valid)(Value, Value))
      : name_(std::move(name)), whole_(whole), valid_(valid) {}

  Tree<Array> init(const Seed&, DType, Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value x, Context& context) const override {
    if (x.rank() < 2 || x.shape()[1] == 0)
      throw UserError(name_, "the input must be a sequence (batch, time, ...) of at least one step", x.type().str());
    const Value lengths = std::exchange(context.lengths, Value{});
    return lengths.defined() ? valid_(x, valid_steps(x, lengths)) : whole_(x);
  }

 private:
  std::string name_;
  Value (*whole_)(Value);
  Value (*valid_)(Value, Value);
};

Value masked_mean(Value x, Value mask) {
  const Value count = reduce_sum(cast(mask, x.dtype()), {1});
  return reduce_sum(select(mask, x, zeros_like(x)), {1}) / maximum(count, like(count, 1));
}

Value masked_max(Value x, Value mask) {
  const Value least = constant(-std::numeric_limits<double>::infinity(), x.dtype(), x.shape());
  const Value largest = reduce_max(select(mask, x, least), {1});
  const Value any = greater(reduce_sum(cast(mask, x.dtype()), {1}), zeros_like(largest));
  return select(any, largest, zeros_like(largest));
}

Layer mean_pool() {
  return PoolModule(
      "mean_pool", [](Value x) { return mean(x, {1}); }, masked_mean);
}
Layer max_pool() {
  return PoolModule(
      "max_pool", [](Value x) { return reduce_max(x, {1}); }, masked_max);
}

}  // namespace

MeanPool::MeanPool() : Layer(mean_pool()) {}
MaxPool::MaxPool() : Layer(max_pool()) {}

std::vector<LayerDef> layers_pool() {
  return {{"max_pool",
           "the largest of each feature over time: (batch, time, ...) -> (batch, ...)",
           {},
           [](const Config&, const ValueType&) -> Layer { return MaxPool(); }},
          {"mean_pool",
           "the mean of each feature over time: (batch, time, ...) -> (batch, ...)",
           {},
           [](const Config&, const ValueType&) -> Layer { return MeanPool(); }}};
}

}  // namespace hotloop::nn
