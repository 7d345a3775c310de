#include "core/print_number.h"
#include "hotloop/ops.h"
#include "optim/wrapper.h"

namespace hotloop::optim {
namespace {

class ClipByValueRule : public Wrapper {
 public:
  ClipByValueRule(Optimizer inner, double max_value) : Wrapper(std::move(inner)), max_value_(max_value) {
    if (!(max_value > 0)) throw UserError("clip_by_value", "max_value must be positive", print_number(max_value));
  }

  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const override {
    return inner().update(grads.map([&](Value g) { return clip(g, -max_value_, max_value_); }), state, params);
  }

 private:
  double max_value_;
};

}  // namespace

ClipByValue::ClipByValue(Optimizer inner, double max_value) : Optimizer(ClipByValueRule(std::move(inner), max_value)) {}

std::vector<WrapperDef> wrappers_clip_by_value() {
  return {{"clip_by_value",
           "clamps each element of the gradients",
           {{"max_value", 1.0, "largest magnitude of an element"}},
           [](const Config& config, Optimizer inner) -> Optimizer {
             return ClipByValue(std::move(inner), config.number("max_value"));
           }}};
}

}  // namespace hotloop::optim
