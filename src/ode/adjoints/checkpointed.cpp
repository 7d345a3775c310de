#include "ode/registry.h"

namespace hotloop::ode {
namespace {

class CheckpointedRule : public AdjointRule {
 public:
  std::string name() const override { return "checkpointed"; }
  std::string residuals() const override { return "recompute"; }
  bool nests() const override { return true; }
};

}  // namespace

Checkpointed::Checkpointed() : Adjoint(CheckpointedRule()) {}

std::vector<AdjointDef> adjoints_checkpointed() {
  return {{"checkpointed",
           "the same in the memory of 2 sqrt(max_steps) states, for one more forward pass",
           {},
           [](const Config&) -> Adjoint { return Checkpointed(); }}};
}

}  // namespace hotloop::ode
