#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "minimizers/registry.h"

namespace hotloop::minimizers {
namespace {

// State: a ring of `history` rows s and y, (m, n) each, 1 / (s . y) of each row, 0 where there is none yet, which makes a row count for
// nothing; the scale of the first inverse Hessian; and how many pairs were kept, i32.
class LBFGSRule : public DescentRule {
 public:
  explicit LBFGSRule(std::int64_t history) : history_(history) {
    if (history < 1) throw UserError("lbfgs", "history must be positive", std::to_string(history));
  }

  State start(Value x) const override {
    const Value none = constant(0, x.dtype(), {history_, x.shape()[0]});
    return {none, none, constant(0, x.dtype(), {history_}), constant(1, x.dtype()), constant(0, DType::I32)};
  }

  std::pair<State, Value> next(const State& state, const StepTaken& taken) const override {
    const DType dtype = taken.g.dtype();
    const Value row = rem(state[4], constant(static_cast<double>(history_), DType::I32));
    const auto kept = [&](Value ring, Value fresh) {
      std::vector<Value> starts = {row};
      std::vector<std::int64_t> sizes = {1};
      if (ring.rank() == 2) {
        starts.push_back(constant(0, DType::I32));
        sizes.push_back(ring.shape()[1]);
      }
      const Value old = dynamic_slice(ring, starts, sizes);
      return dynamic_update(ring, select(taken.is_usable, reshape(fresh, old.shape()), old), starts);
    };
    const Value sy = cast(taken.sy, dtype);
    const Value scale = select(taken.is_usable, sy / matmul(taken.y, taken.y), state[3]);
    const State after = {kept(state[0], taken.s), kept(state[1], taken.y), kept(state[2], reciprocal(sy)), scale,
                         state[4] + cast(taken.is_usable, DType::I32)};
    return {after, -inverse_hessian_times(after, taken.g)};
  }

  State forget(Value condition, const State& state, Value) const override {
    const auto where_not = [&](Value v, double fallback) {
      return select(condition, constant(fallback, v.dtype(), v.shape()), v);
    };
    return {state[0], state[1], where_not(state[2], 0), where_not(state[3], 1), where_not(state[4], 0)};
  }

 private:
  // From the newest pair to the oldest one, and back.
  Value inverse_hessian_times(const State& state, Value g) const {
    const Value m = constant(static_cast<double>(history_), DType::I32);
    const auto pair = [&](Value age) {
      const Value row = rem(state[4] + static_cast<double>(2 * history_ - 1) - age, m);
      const Value start[] = {row, constant(0, DType::I32)};
      const auto of = [&](Value ring) { return reshape(dynamic_slice(ring, start, {1, g.shape()[0]}), g.shape()); };
      return std::tuple(of(state[0]), of(state[1]), gather(state[2], row, 0));
    };
    const std::vector<Value> ages = {iota(DType::I32, {history_}, 0)};
    const auto newest_first = scan(
        [&](std::span<const Value> q, std::span<const Value> age) {
          const auto [s, y, rho] = pair(age[0]);
          const Value alpha = rho * matmul(s, q[0]);
          return std::pair(std::vector<Value>{q[0] - alpha * y}, std::vector<Value>{alpha});
        },
        std::vector<Value>{g}, ages);
    const auto oldest_first = scan(
        [&](std::span<const Value> r, std::span<const Value> xs) {
          const auto [s, y, rho] = pair(xs[0]);
          return std::pair(std::vector<Value>{r[0] + (xs[1] - rho * matmul(y, r[0])) * s}, std::vector<Value>{});
        },
        std::vector<Value>{state[3] * newest_first.first[0]}, std::vector<Value>{ages[0], newest_first.second[0]},
        {.reverse = true});
    return oldest_first.first[0];
  }

  std::int64_t history_;
};

}  // namespace

LBFGS::LBFGS(std::int64_t history) : Descent(LBFGSRule(history)) {}

std::vector<DescentDef> descents_lbfgs() {
  return {{"lbfgs",
           "limited-memory BFGS (Nocedal 1980): the last steps stand for the curvature, for any number of parameters",
           {{"history", std::int64_t{10}, "steps that are kept"}},
           [](const Config& config) -> Descent { return LBFGS(config.integer("history")); }}};
}

}  // namespace hotloop::minimizers
