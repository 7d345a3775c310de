#include <numbers>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class CosineRule : public ScheduleRule {
 public:
  CosineRule(std::int64_t steps, double last) : steps_(steps), last_(last) {
    if (steps < 1) throw UserError("cosine", "steps must be positive", std::to_string(steps));
    if (!(last >= 0)) throw UserError("cosine", "last must not be negative", print_number(last));
  }

  Value factor(Value step, const Tree<Value>&) const override {
    const Value done = clip(cast(step, DType::F64) / static_cast<double>(steps_), 0, 1);
    return last_ + (0.5 * (1 - last_)) * (1.0 + cos(std::numbers::pi * done));
  }

 private:
  std::int64_t steps_;
  double last_;
};

}  // namespace

Cosine::Cosine(std::int64_t steps, double last) : ScheduleFactor(CosineRule(steps, last)) {}

std::vector<ScheduleDef> schedules_cosine() {
  return {
      {"cosine",
       "half a cosine from 1 down to `last`, where it stays",
       {{"steps", std::int64_t{0}, "until `last` is reached", true}, {"last", 0.0, "factor at the end"}},
       [](const Config& config) -> ScheduleFactor { return Cosine(config.integer("steps"), config.number("last")); }}};
}

}  // namespace hotloop::optim
