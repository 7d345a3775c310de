#include "hotloop/error.h"
#include "hotloop/ode.h"
#include "hotloop/ops.h"

namespace hotloop::ode {
namespace {

class ConstantStepRule : public StepSizeRule {
 public:
  bool is_adaptive() const override { return false; }

  std::pair<Value, Leaves> start(const VectorField&, Value t0, const Leaves&, Value dt0, int) const override {
    if (!dt0.defined())
      throw UserError("ode.solve", "constant steps need dt0", "none",
                      "dt0 = the step size, or an adaptive controller: PID(rtol, atol)");
    return {t0 + dt0, {dt0}};
  }

  Proposal propose(const VectorField&, const Attempt& attempt) const override {
    Proposal next;
    next.t0 = attempt.t1;
    next.t1 = attempt.t1 + attempt.state[0];
    next.state = attempt.state;
    return next;
  }
};

}  // namespace

ConstantStep::ConstantStep() : Controller(ConstantStepRule()) {}

}  // namespace hotloop::ode
