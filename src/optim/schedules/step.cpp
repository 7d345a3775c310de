#include <cmath>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class StepDecayRule : public ScheduleRule {
 public:
  StepDecayRule(std::int64_t every, double gamma) : every_(every), gamma_(gamma) {
    if (every < 1) throw UserError("step", "every must be positive", std::to_string(every));
    if (!(gamma > 0)) throw UserError("step", "gamma must be positive", print_number(gamma));
  }

  Value factor(Value step, const Tree<Value>&) const override {
    const Value times = floor(cast(step, DType::F64) / static_cast<double>(every_));
    return pow(constant(gamma_, DType::F64), times);
  }

 private:
  std::int64_t every_;
  double gamma_;
};

}  // namespace

StepDecay::StepDecay(std::int64_t every, double gamma) : ScheduleFactor(StepDecayRule(every, gamma)) {}

std::vector<ScheduleDef> schedules_step() {
  return {{"step",
           "times `gamma` again and again",
           {{"every", std::int64_t{0}, "steps from one fall to the next", true}, {"gamma", 0.1, "factor of one fall"}},
           [](const Config& config) -> ScheduleFactor {
             return StepDecay(config.integer("every"), config.number("gamma"));
           }}};
}

}  // namespace hotloop::optim
