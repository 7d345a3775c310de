#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class FlattenModule : public BuiltInModule {
 public:
  Tree<Array> init(const Seed&, DType, Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value x, Context& context) const override {
    if (x.rank() < 1) throw UserError("flatten", "the input must have a batch axis", x.type().str());
    context.lengths = {};
    std::int64_t features = 1;
    for (int i = 1; i < x.rank(); ++i) features *= x.shape()[i];
    return reshape(x, {x.shape()[0], features});
  }
};

}  // namespace

Flatten::Flatten() : Layer(FlattenModule()) {}

std::vector<LayerDef> layers_flatten() {
  return {{"flatten",
           "all axes but the batch as one: (batch, ...) -> (batch, features)",
           {},
           [](const Config&, const ValueType&) -> Layer { return Flatten(); }}};
}

}  // namespace hotloop::nn
