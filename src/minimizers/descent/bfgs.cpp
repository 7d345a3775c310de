#include "hotloop/ops.h"
#include "minimizers/registry.h"

namespace hotloop::minimizers {
namespace {

// State: the inverse Hessian H, (n, n), and whether it has seen a step, bool.
class BFGSRule : public DescentRule {
 public:
  State start(Value x) const override {
    const std::int64_t n = x.shape()[0];
    const Value identity = cast(equal(iota(DType::I32, {n, n}, 0), iota(DType::I32, {n, n}, 1)), x.dtype());
    return {identity, constant(0, DType::Bool)};
  }

  // H + (1 + y.Hy / s.y) s s^T / s.y - (Hy s^T + s Hy^T) / s.y, from H = s.y / y.y I at the first step (Nocedal and Wright 6.17, 6.20).
  std::pair<State, Value> next(const State& state, const StepTaken& taken) const override {
    const Value s = taken.s, y = taken.y;
    const Value rho = reciprocal(cast(taken.sy, s.dtype()));
    const Value scale = select(state[1], like(rho, 1), reciprocal(rho * matmul(y, y)));
    const Value h = scale * state[0];
    const Value hy = matmul(h, y);
    // As one product of a row and a column on each side, so that H stays symmetric to the bit.
    const Value column = ((1 + rho * matmul(y, hy)) / 2.0 * s - hy) * rho;
    const auto outer = [](Value a, Value b) { return expand_dims(a, 1) * expand_dims(b, 0); };
    const Value updated = h + (outer(column, s) + outer(s, column));
    const Value next = select(taken.is_usable, updated, state[0]);
    return {{next, bit_or(state[1], taken.is_usable)}, -matmul(next, taken.g)};
  }
};

}  // namespace

BFGS::BFGS() : Descent(BFGSRule()) {}

std::vector<DescentDef> descents_bfgs() {
  return {
      {"bfgs",
       "BFGS with the inverse Hessian as a matrix (Nocedal and Wright 2006, 6.1), for up to some hundred parameters",
       {},
       [](const Config&) -> Descent { return BFGS(); }}};
}

}  // namespace hotloop::minimizers
