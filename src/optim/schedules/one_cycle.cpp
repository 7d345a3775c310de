#include <numbers>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class OneCycleRule : public ScheduleRule {
 public:
  OneCycleRule(std::int64_t steps, double rise, double divisor, double last_divisor)
      : steps_(steps), rise_(rise), first_(1 / divisor), last_(1 / (divisor * last_divisor)) {
    if (steps < 2) throw UserError("one_cycle", "steps must be at least 2", std::to_string(steps));
    if (!(rise > 0 && rise < 1)) throw UserError("one_cycle", "rise must be between 0 and 1", print_number(rise));
    if (!(rise * static_cast<double>(steps) > 1))
      throw UserError("one_cycle", "the rise must take more than one step",
                      print_number(rise) + " of " + std::to_string(steps) + " steps", "more steps");
    for (const double d : {divisor, last_divisor})
      if (!(d >= 1)) throw UserError("one_cycle", "divisors must be at least 1", print_number(d));
  }

  Value factor(Value step, const Tree<Value>&) const override {
    const Value at = cast(step, DType::F64);
    const double peak = rise_ * static_cast<double>(steps_) - 1, end = static_cast<double>(steps_ - 1);
    return select(less_equal(at, like(at, peak)), between(first_, 1, at / peak),
                  between(1, last_, (at - peak) / (end - peak)));
  }

 private:
  // Along half a cosine from a to b.
  static Value between(double a, double b, Value done) {
    return b + (0.5 * (a - b)) * (1.0 + cos(std::numbers::pi * clip(done, 0, 1)));
  }

  std::int64_t steps_;
  double rise_, first_, last_;
};

}  // namespace

OneCycle::OneCycle(std::int64_t steps, double rise, double divisor, double last_divisor)
    : ScheduleFactor(OneCycleRule(steps, rise, divisor, last_divisor)) {}

std::vector<ScheduleDef> schedules_one_cycle() {
  return {{"one_cycle",
           "up to 1 and down again, along half cosines",
           {{"steps", std::int64_t{0}, "of the whole cycle", true},
            {"rise", 0.3, "part of the steps on the way up"},
            {"divisor", 25.0, "the first factor is 1 / divisor"},
            {"last_divisor", 1e4, "the last factor is 1 / (divisor * last_divisor)"}},
           [](const Config& config) -> ScheduleFactor {
             return OneCycle(config.integer("steps"), config.number("rise"), config.number("divisor"),
                             config.number("last_divisor"));
           }}};
}

}  // namespace hotloop::optim
