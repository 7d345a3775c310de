#include "core/print_number.h"
#include "hotloop/ops.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class WarmupRule : public ScheduleRule {
 public:
  WarmupRule(std::int64_t steps, double start) : steps_(steps), start_(start) {
    if (steps < 1) throw UserError("warmup", "steps must be positive", std::to_string(steps));
    if (!(start >= 0)) throw UserError("warmup", "start must not be negative", print_number(start));
  }

  Value factor(Value step, const Tree<Value>&) const override {
    const Value done = clip(cast(step, DType::F64) / static_cast<double>(steps_), 0, 1);
    return start_ + (1 - start_) * done;
  }

 private:
  std::int64_t steps_;
  double start_;
};

}  // namespace

Warmup::Warmup(std::int64_t steps, double start) : ScheduleFactor(WarmupRule(steps, start)) {}

std::vector<ScheduleDef> schedules_warmup() {
  return {
      {"warmup",
       "linear from `start` to 1 over the first steps",
       {{"steps", std::int64_t{0}, "until the factor is 1", true}, {"start", 0.0, "factor of the first step"}},
       [](const Config& config) -> ScheduleFactor { return Warmup(config.integer("steps"), config.number("start")); }}};
}

}  // namespace hotloop::optim
