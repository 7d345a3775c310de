#include "hotloop/ops.h"
#include "minimizers/registry.h"

namespace hotloop::minimizers {
namespace {

// d = -g + max(0, g . y / (g0 . g0)) d0, the "PR+" of Gilbert and Nocedal 1992, where g0 = g - y. State: d0.
class NonlinearCGRule : public DescentRule {
 public:
  State start(Value x) const override { return {zeros_like(x)}; }

  std::pair<State, Value> next(const State& state, const StepTaken& taken) const override {
    const Value before = taken.g - taken.y, size = matmul(before, before), zero = zeros_like(size);
    // The search is not exact, and d0 = s / step: only its direction is needed. At the first step s is 0.
    const Value beta = select(greater(size, zero), maximum(matmul(taken.g, taken.y) / size, zero), zero);
    const Value previous = select(greater(matmul(state[0], state[0]), zero), state[0], -before);
    const Value d = beta * previous - taken.g;
    return {{select(taken.is_taken, d, state[0])}, d};
  }
  double curvature() const override { return 0.1; }
  bool has_unit_step() const override { return false; }
};

}  // namespace

NonlinearCG::NonlinearCG() : Descent(NonlinearCGRule()) {}

std::vector<DescentDef> descents_nonlinear_cg() {
  return {{"nonlinear_cg",
           "conjugate gradients (Polak and Ribiere with restarts): the memory of one direction",
           {},
           [](const Config&) -> Descent { return NonlinearCG(); }}};
}

}  // namespace hotloop::minimizers
