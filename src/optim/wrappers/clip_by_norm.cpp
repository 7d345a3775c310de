#include "core/print_number.h"
#include "hotloop/ops.h"
#include "optim/wrapper.h"

namespace hotloop::optim {
namespace {

class ClipByNormRule : public Wrapper {
 public:
  ClipByNormRule(Optimizer inner, double max_norm) : Wrapper(std::move(inner)), max_norm_(max_norm) {
    if (!(max_norm > 0)) throw UserError("clip_by_norm", "max_norm must be positive", print_number(max_norm));
  }

  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const override {
    // In f64 from the sums of each leaf on: leaves may have different dtypes.
    Value total = constant(0, DType::F64);
    grads.for_each([&](const std::string&, Value g) { total = total + cast(sum(square(g)), DType::F64); });
    const Value scale = minimum(max_norm_ / (sqrt(total) + 1e-6), constant(1, DType::F64));
    return inner().update(grads.map([&](Value g) { return g * cast(scale, g.dtype()); }), state, params);
  }

 private:
  double max_norm_;
};

}  // namespace

ClipByNorm::ClipByNorm(Optimizer inner, double max_norm) : Optimizer(ClipByNormRule(std::move(inner), max_norm)) {}

std::vector<WrapperDef> wrappers_clip_by_norm() {
  return {{"clip_by_norm",
           "scales all gradients together so that their norm is at most max_norm",
           {{"max_norm", 1.0, "of all gradients together"}},
           [](const Config& config, Optimizer inner) -> Optimizer {
             return ClipByNorm(std::move(inner), config.number("max_norm"));
           }}};
}

}  // namespace hotloop::optim
