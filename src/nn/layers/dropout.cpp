#include "nn/dropout.h"

#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class DropoutModule : public BuiltInModule {
 public:
  DropoutModule(double rate, bool same_over_time) : rate_(rate), same_over_time_(same_over_time) {
    check_dropout_rate("dropout", rate);
  }

  Tree<Array> init(const Seed&, DType, Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value x, Context& context) const override {
    if (rate_ == 0 || !context.is_training()) return x;
    if (!same_over_time_) return x * dropout_factor(context, x.type(), rate_);
    if (x.rank() < 2)
      throw UserError("dropout", "only a sequence (batch, time, ...) has steps", x.type().str(),
                      "same_over_time = false");
    const Value factor = dropout_factor(context, {x.dtype(), x.shape().without(1)}, rate_);
    return x * broadcast_to(expand_dims(factor, 1), x.shape());
  }

 private:
  double rate_;
  bool same_over_time_;
};

}  // namespace

Dropout::Dropout(double rate, bool same_over_time) : Layer(DropoutModule(rate, same_over_time)) {}

std::vector<LayerDef> layers_dropout() {
  return {{"dropout",
           "in training, elements to zero at random: shape unchanged",
           {{"rate", 0.5, "probability of an element to become zero, in [0, 1)"},
            {"same_over_time", false, "one mask for all steps of a sequence"}},
           [](const Config& config, const ValueType&) -> Layer {
             return Dropout(config.number("rate"), config.flag("same_over_time"));
           }}};
}

}  // namespace hotloop::nn
