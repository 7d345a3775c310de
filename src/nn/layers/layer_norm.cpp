#include <numeric>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class LayerNormModule : public BuiltInModule {
 public:
  LayerNormModule(std::int64_t features, double epsilon) : features_(features), epsilon_(epsilon) {
    if (features <= 0) throw UserError("layer_norm", "features must be positive", std::to_string(features));
    if (!(epsilon >= 0)) throw UserError("layer_norm", "epsilon must not be negative", print_number(epsilon));
  }

  Tree<Array> init(const Seed&, DType dtype, Init) const override {
    return {{"weight", Array::full(dtype, {features_}, 1)}, {"bias", Array::zeros(dtype, {features_})}};
  }
  Value apply(const Tree<Value>& params, Value x, Context&) const override {
    return layer_norm(x, params["weight"], params["bias"], epsilon_);
  }

 private:
  std::int64_t features_;
  double epsilon_;
};

}  // namespace

Value layer_norm(Value x, Value weight, Value bias, double epsilon) {
  if (x.rank() < 1 || weight.shape() != Shape{x.shape()[x.rank() - 1]} || bias.shape() != weight.shape())
    throw UserError("layer_norm", "weight and bias must have the extent of the input's last axis",
                    "x " + x.type().str() + ", weight " + weight.type().str() + ", bias " + bias.type().str());
  const std::int64_t last = x.rank() - 1;
  std::vector<std::int64_t> others(static_cast<std::size_t>(last));
  std::iota(others.begin(), others.end(), 0);
  const auto repeated = [&](Value reduced) { return broadcast(reduced, x.shape(), others); };
  const Value centred = x - repeated(mean(x, {last}));
  return centred * repeated(rsqrt(mean(square(centred), {last}) + epsilon)) * weight + bias;
}

LayerNorm::LayerNorm(std::int64_t features, double epsilon) : Layer(LayerNormModule(features, epsilon)) {}

std::vector<LayerDef> layers_layer_norm() {
  return {{"layer_norm",
           "normalises the last axis, then scales and shifts it: shape unchanged",
           {{"epsilon", 1e-5, "added to the variance (Keras has 1e-3)"}},
           [](const Config& config, const ValueType& input) -> Layer {
             return LayerNorm(features_of(input, 0, "layer_norm"), config.number("epsilon"));
           }}};
}

}  // namespace hotloop::nn
