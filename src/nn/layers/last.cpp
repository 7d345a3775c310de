#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class LastModule : public Module {
 public:
  Tree<Array> init(std::uint64_t, DType, Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value x, Context&) const override {
    if (x.rank() < 2 || x.shape()[1] == 0)
      throw UserError("last", "the input must be a sequence (batch, time, ...) of at least one step", x.type().str());
    return take(x, 1, -1);
  }
};

}  // namespace

Last::Last() : Layer(LastModule()) {}

std::vector<LayerDef> layers_last() {
  return {{"last",
           "the last step of a sequence: (batch, time, ...) -> (batch, ...)",
           {},
           [](const Config&, const ValueType&) -> Layer { return Last(); }}};
}

}  // namespace hotloop::nn
