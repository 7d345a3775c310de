#include <cmath>

#include "hotloop/ops.h"
#include "nn/parameters.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class LinearModule : public BuiltInModule {
 public:
  LinearModule(std::int64_t inputs, std::int64_t outputs, bool bias) : inputs_(inputs), outputs_(outputs), bias_(bias) {
    if (inputs <= 0) throw UserError("linear", "inputs must be positive", std::to_string(inputs));
    if (outputs <= 0) throw UserError("linear", "outputs must be positive", std::to_string(outputs));
  }

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs_));
    const Shape weight{outputs_, inputs_}, bias{outputs_};
    const bool keras = init == Init::Keras;
    Tree<Array> params;
    const Seed weight_seed = fold_in(seed, "weight");
    params.set("weight",
               keras ? glorot_uniform(weight_seed, weight, dtype) : uniform(weight_seed, weight, dtype, -bound, bound));
    if (bias_)
      params.set("bias",
                 keras ? Array::zeros(dtype, bias) : uniform(fold_in(seed, "bias"), bias, dtype, -bound, bound));
    return params;
  }

  Value apply(const Tree<Value>& params, Value x, Context&) const override {
    check_parameters("linear", params, {{"weight", {outputs_, inputs_}}, {"bias", {outputs_}}});
    const Value weight = params["weight"];
    if (x.rank() < 1 || x.shape()[x.rank() - 1] != inputs_)
      throw UserError("linear", "the input's last axis must have " + std::to_string(inputs_) + " features",
                      "x " + x.type().str() + ", weight " + weight.type().str(),
                      "make the layer with as many inputs as the data has features");
    const Value product = nn::linear(x, weight);
    return bias_ || params.has("bias") ? product + params["bias"] : product;
  }

 private:
  std::int64_t inputs_, outputs_;
  bool bias_;
};

}  // namespace

Linear::Linear(std::int64_t inputs, std::int64_t outputs, bool bias) : Layer(LinearModule(inputs, outputs, bias)) {}

std::vector<LayerDef> layers_linear() {
  return {{"linear",
           "y = x W^T + b on the last axis: (..., features) -> (..., units)",
           {{"units", std::int64_t{0}, "number of outputs", true}, {"bias", true, "whether there is a bias"}},
           [](const Config& config, const ValueType& input) -> Layer {
             return Linear(features_of(input, 0, "linear"), config.integer("units"), config.flag("bias"));
           }}};
}

}  // namespace hotloop::nn
