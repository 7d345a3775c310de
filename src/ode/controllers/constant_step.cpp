#include "hotloop/error.h"
#include "hotloop/ode.h"
#include "hotloop/ops.h"

namespace hotloop::ode {
namespace {

// Times are compensated sums (Kahan 1965), so that n steps end where n dt0 is. State: dt0, and what the last sum has lost of it.
class ConstantStepRule : public StepSizeRule {
 public:
  bool is_adaptive() const override { return false; }

  std::pair<Value, Leaves> start(const VectorField&, Value t0, const Leaves&, Value dt0, int) const override {
    if (!dt0.defined())
      throw UserError("ode.solve", "constant steps need dt0", "none",
                      "dt0 = the step size, or an adaptive controller: PID(rtol, atol)");
    const Value t1 = t0 + dt0;
    return {t1, {dt0, stop_gradient(dt0 - (t1 - t0))}};
  }

  Proposal propose(const VectorField&, const Attempt& attempt) const override {
    const Value length = attempt.state[0] + attempt.state[1];
    Proposal next;
    next.t0 = attempt.t1;
    next.t1 = attempt.t1 + length;
    next.state = {attempt.state[0], stop_gradient(length - (next.t1 - next.t0))};
    return next;
  }
};

}  // namespace

ConstantStep::ConstantStep() : Controller(ConstantStepRule()) {}

}  // namespace hotloop::ode
