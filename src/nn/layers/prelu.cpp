#include "hotloop/ops.h"
#include "nn/parameters.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class PreluModule : public BuiltInModule {
 public:
  explicit PreluModule(std::int64_t features) : features_(features) {
    if (features <= 0) throw UserError("prelu", "features must be positive", std::to_string(features));
  }

  Tree<Array> init(const Seed&, DType dtype, Init init) const override {
    return {{"weight", Array::full(dtype, {features_}, init == Init::Torch ? 0.25 : 0.0)}};
  }
  Value apply(const Tree<Value>& params, Value x, Context&) const override {
    if (x.rank() < 1 || (features_ != 1 && x.shape()[x.rank() - 1] != features_))
      throw UserError("prelu", "the input's last axis must have " + std::to_string(features_) + " features",
                      x.type().str(), "make the layer with as many features as the last axis has");
    check_parameters("prelu", params, {{"weight", {features_}}});
    return select(greater(x, like(x, 0)), x, params["weight"] * x);
  }

 private:
  std::int64_t features_;
};

}  // namespace

PReLU::PReLU(std::int64_t features) : Layer(PreluModule(features)) {}

std::vector<LayerDef> layers_prelu() {
  return {{"prelu",
           "max(x, 0) + weight min(x, 0) with a trained weight for each feature: shape unchanged",
           {},
           [](const Config&, const ValueType& input) -> Layer { return PReLU(features_of(input, 0, "prelu")); }}};
}

}  // namespace hotloop::nn
