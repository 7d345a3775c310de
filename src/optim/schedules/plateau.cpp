#include <limits>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class PlateauRule : public ScheduleRule {
 public:
  explicit PlateauRule(const PlateauOptions& options) : options_(options) {
    if (!(options.factor > 0 && options.factor < 1))
      throw UserError("plateau", "factor must be between 0 and 1", print_number(options.factor));
    for (const std::int64_t count : {options.patience, options.cooldown})
      if (count < 0 || count > std::numeric_limits<std::int32_t>::max() / 2)
        throw UserError("plateau", "patience and cooldown must not be negative", std::to_string(count));
    for (const double number : {options.threshold, options.least})
      if (!(number >= 0)) throw UserError("plateau", "threshold and least must not be negative", print_number(number));
  }

  Tree<Array> init() const override {
    return {{"factor", Array::scalar(1.0)},
            {"best", Array::scalar(nothing_yet)},
            {"bad", Array::scalar<std::int32_t>(0)},
            {"wait", Array::scalar<std::int32_t>(0)}};
  }

  Value factor(Value, const Tree<Value>& state) const override { return state["factor"]; }

  Tree<Value> observe(const Tree<Value>& state, Value value) const override {
    const auto count = [](std::int64_t n) { return constant(static_cast<double>(n), DType::I32); };
    const Value best = state["best"];
    // The first value is better however large the threshold is.
    const Value goal = select(less(best, like(best, nothing_yet)), best - options_.threshold * abs(best), best);
    const Value better = less(value, goal), waiting = greater(state["wait"], count(0));
    const Value bad = select(bit_or(better, waiting), count(0), state["bad"] + count(1));
    const Value falls = greater(bad, count(options_.patience));
    const Value lower = maximum(state["factor"] * options_.factor, like(best, options_.least));
    return {{"factor", select(falls, minimum(state["factor"], lower), state["factor"])},
            {"best", select(better, value, best)},
            {"bad", select(falls, count(0), bad)},
            {"wait", select(falls, count(options_.cooldown), maximum(state["wait"] - count(1), count(0)))}};
  }

 private:
  // Finite: a training whose state is not counts as diverged.
  static constexpr double nothing_yet = std::numeric_limits<double>::max();

  PlateauOptions options_;
};

}  // namespace

Plateau::Plateau(const PlateauOptions& options) : ScheduleFactor(PlateauRule(options)) {}

std::vector<ScheduleDef> schedules_plateau() {
  return {{"plateau",
           "lower once the validation has not become better for a while",
           {{"factor", 0.1, "of one fall"},
            {"patience", std::int64_t{10}, "validations without a better one that are borne"},
            {"cooldown", std::int64_t{0}, "validations after a fall that are not counted"},
            {"threshold", 1e-4, "a better one is less than best - threshold |best|"},
            {"least", 0.0, "factor that is not gone below"}},
           [](const Config& config) -> ScheduleFactor {
             return Plateau({config.number("factor"), config.integer("patience"), config.integer("cooldown"),
                             config.number("threshold"), config.number("least")});
           }}};
}

}  // namespace hotloop::optim
