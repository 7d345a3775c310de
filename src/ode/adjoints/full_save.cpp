#include "ode/registry.h"

namespace hotloop::ode {
namespace {

class FullSaveRule : public AdjointRule {
 public:
  std::string name() const override { return "full_save"; }
  std::string residuals() const override { return "save"; }
};

}  // namespace

FullSave::FullSave() : Adjoint(FullSaveRule()) {}

std::vector<AdjointDef> adjoints_full_save() {
  return {{"full_save", "the same; keeps the stages too", {}, [](const Config&) -> Adjoint { return FullSave(); }}};
}

}  // namespace hotloop::ode
