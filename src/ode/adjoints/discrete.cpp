#include "ode/registry.h"

namespace hotloop::ode {
namespace {

class DiscreteRule : public AdjointRule {
 public:
  std::string name() const override { return "discrete"; }
  std::string residuals() const override { return "save_if_small"; }
};

}  // namespace

Discrete::Discrete() : Adjoint(DiscreteRule()) {}

std::vector<AdjointDef> adjoints_discrete() {
  return {{"discrete",
           "of the steps as they were taken; keeps the state at each step, and the stages where they are small",
           {},
           [](const Config&) -> Adjoint { return Discrete(); }}};
}

}  // namespace hotloop::ode
