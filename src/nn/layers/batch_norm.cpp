#include <numeric>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "nn/parameters.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class BatchNormModule : public BuiltInModule {
 public:
  BatchNormModule(std::int64_t features, const BatchNormOptions& options) : features_(features), options_(options) {
    if (features <= 0) throw UserError("batch_norm", "features must be positive", std::to_string(features));
    if (!(options.epsilon >= 0))
      throw UserError("batch_norm", "epsilon must not be negative", print_number(options.epsilon));
    if (!(options.momentum >= 0 && options.momentum <= 1))
      throw UserError("batch_norm", "momentum must be in [0, 1]", print_number(options.momentum));
  }

  Tree<Array> init(const Seed&, DType dtype, Init) const override {
    return {{"weight", Array::full(dtype, {features_}, 1)}, {"bias", Array::zeros(dtype, {features_})}};
  }
  Tree<Array> init_buffers(DType dtype) const override {
    return {{"running_mean", Array::zeros(dtype, {features_})},
            {"running_var", Array::full(dtype, {features_}, 1)},
            {"num_batches_tracked", Array::scalar<std::int64_t>(0)}};
  }

  Value apply(const Tree<Value>& params, Value x, Context& context) const override {
    const Value weight = params["weight"], bias = params["bias"];
    if (x.rank() < 2 || x.shape()[x.rank() - 1] != features_)
      throw UserError("batch_norm", "the input must be (batch, ..., " + std::to_string(features_) + ")", x.type().str(),
                      "make the layer with as many features as the last axis has");
    if (!context.buffers.has("running_mean") || !context.buffers.has("running_var"))
      throw UserError("batch_norm", "the running mean and variance must be given", "none",
                      "buffers = run.buffers, which training gave with the parameters, or the model's init_buffers()");
    const Shape each{features_};
    check_parameters("batch_norm", params, {{"weight", each}, {"bias", each}});
    check_parameters("batch_norm", context.buffers, {{"running_mean", each}, {"running_var", each}});
    const Value running_mean = context.buffers["running_mean"], running_var = context.buffers["running_var"];
    if (!context.is_training())
      return (x - repeated(running_mean, x)) * repeated(rsqrt(running_var + options_.epsilon) * weight, x) +
             repeated(bias, x);

    const Moments moments(x, context.lengths);
    const Value centred = x - repeated(moments.mean, x);
    const Value variance = moments.mean_of(square(centred));
    const Value spread =
        options_.unbiased ? variance * (moments.count / maximum(moments.count - 1.0, like(x, 1))) : variance;
    context.buffers.set("running_mean", moments.where_any(moved(running_mean, moments.mean), running_mean));
    context.buffers.set("running_var", moments.where_any(moved(running_var, spread), running_var));
    if (context.buffers.has("num_batches_tracked")) {
      const Value before = context.buffers["num_batches_tracked"];
      context.buffers.set("num_batches_tracked", moments.where_any(before + constant(1, DType::I64), before));
    }
    return centred * repeated(rsqrt(variance + options_.epsilon) * weight, x) + repeated(bias, x);
  }

 private:
  // Means over all axes but the last, of the valid steps.
  struct Moments {
    Moments(Value x, Value lengths) : axes(static_cast<std::size_t>(x.rank() - 1)) {
      std::iota(axes.begin(), axes.end(), 0);
      if (lengths.defined()) {
        mask = valid_steps(x, lengths);
        const Value one_feature = take(cast(mask, x.dtype()), x.rank() - 1, 0);
        const Value steps = sum(one_feature);
        any = greater(steps, like(steps, 0));
        count = maximum(steps, like(steps, 1));
      } else {
        count = cast(extent(x, 0), x.dtype());
        for (int i = 1; i < x.rank() - 1; ++i) count = count * extent(x, i);
      }
      mean = mean_of(x);
    }
    Value mean_of(Value v) const {
      return reduce_sum(mask.defined() ? select(mask, v, zeros_like(v)) : v, axes) / count;
    }

    // A batch without a valid step says nothing of means and variances.
    Value where_any(Value moved, Value before) const {
      return any.defined() ? select(broadcast_to(any, moved.shape()), moved, before) : moved;
    }

    std::vector<std::int64_t> axes;
    Value mask, any, count, mean;
  };

  static Value repeated(Value feature, Value x) { return broadcast_to(feature, x.shape()); }
  Value moved(Value running, Value batch) const {
    return (1 - options_.momentum) * running + options_.momentum * stop_gradient(batch);
  }

  std::int64_t features_;
  BatchNormOptions options_;
};

}  // namespace

BatchNorm::BatchNorm(std::int64_t features, const BatchNormOptions& options)
    : Layer(BatchNormModule(features, options)) {}

std::vector<LayerDef> layers_batch_norm() {
  return {{"batch_norm",
           "normalises each feature over the batch, then scales and shifts it: shape unchanged",
           {{"momentum", 0.1, "share of a batch in the running mean and variance (Keras has 0.01)"},
            {"epsilon", 1e-5, "added to the variance (Keras has 1e-3)"},
            {"unbiased", true, "the running variance divides by n - 1 (Keras: n)"}},
           [](const Config& config, const ValueType& input) -> Layer {
             return BatchNorm(features_of(input, 0, "batch_norm"),
                              {config.number("momentum"), config.number("epsilon"), config.flag("unbiased")});
           }}};
}

}  // namespace hotloop::nn
