#include <cmath>
#include <limits>

#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/ode.h"
#include "hotloop/ops.h"

namespace hotloop::ode {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Not a number below the normal range, which programs may take for 0.
double next_after(double x, double to, DType dtype) {
  if (x == 0)
    return std::copysign(dtype == DType::F32 ? static_cast<double>(std::numeric_limits<float>::min())
                                             : std::numeric_limits<double>::min(),
                         to);
  return dtype == DType::F32 ? static_cast<double>(std::nextafter(static_cast<float>(x), static_cast<float>(to)))
                             : std::nextafter(x, to);
}

// State: the length that the step under way would have had, then the inner controller's.
class ClipRule : public StepSizeRule {
 public:
  ClipRule(Controller inner, std::vector<double> step_ts, std::vector<double> jump_ts)
      : inner_(std::move(inner)), step_ts_(std::move(step_ts)), jump_ts_(std::move(jump_ts)) {
    for (const std::vector<double>* times : {&step_ts_, &jump_ts_})
      for (const double t : *times)
        if (!std::isfinite(t)) throw UserError("ode.Clip", "times must be finite", print_number(t));
  }

  bool is_adaptive() const override { return inner_.rule().is_adaptive(); }
  bool makes_jumps() const override { return !jump_ts_.empty(); }

  std::pair<Value, Leaves> start(const VectorField& field, Value t0, const Leaves& y0, Value dt0,
                                 int error_order) const override {
    auto [t1, inner] = inner_.rule().start(field, t0, y0, dt0, error_order);
    Leaves state = {t1 - t0};
    state.insert(state.end(), inner.begin(), inner.end());
    return {t1, state};
  }

  Leaves tolerance(const Leaves& y) const override { return inner_.rule().tolerance(y); }

  Proposal propose(const VectorField& field, const Attempt& in) const override {
    const Leaves inner_state(in.state.begin() + 1, in.state.end());
    Proposal next =
        inner_.rule().propose(field, {in.t0, in.t1, in.y0, in.y1, in.error, in.error_order, inner_state, in.failed});
    Value length = next.t1 - next.t0;
    // A step that was cut short says little about how long the next may be.
    const Value wanted = in.state[0], was_cut = less(in.t1 - in.t0, wanted * (1 - 1e-3));
    const Value longer = maximum(length, wanted);
    length = stop_gradient(select(next.keep.defined() ? bit_and(was_cut, next.keep) : was_cut, longer, length));
    next.t1 = next.t0 + length;
    next.state.insert(next.state.begin(), length);
    return next;
  }

  // Steps end just before a jump and start again just after it, whatever the times of both follow from.
  StepEnds limit(const VectorField& field, Value t0, Value t1, const TimeMargin& margin) const override {
    StepEnds ends = inner_.rule().limit(field, t0, t1, margin);
    const DType dtype = field.time_dtype();
    // At the first of the times that lie further ahead than `gap`.
    const auto end_at = [&](Value ts, Value gap) {
      const Value ahead = greater(ts - gap, broadcast_to(ends.t0, ts.shape()));
      const auto first = [&](Value of) { return reduce_min(select(ahead, of, like(of, infinity)), {0}); };
      ends.t1 = select(greater(ends.t1, stop_gradient(first(ts - margin(ts)))), first(ts), ends.t1);
    };
    if (makes_jumps()) {
      const Value before = times(field, jump_ts_, dtype, -1), after = times(field, jump_ts_, dtype, 1);
      const Value begin = broadcast_to(ends.t0, before.shape());
      const Value at = bit_and(less_equal(before, begin), less(begin, after));
      const Value landed = reduce_max(select(at, after, like(after, -infinity)), {0});
      ends.t0 = ends.t0 + stop_gradient(maximum(landed, ends.t0) - ends.t0);
      end_at(before, zeros_like(before));  // within the margin too, or the step would see the field beyond
    }
    if (!step_ts_.empty()) {
      const Value ts = times(field, step_ts_, dtype, 0);
      end_at(ts, margin(ts));
    }
    return ends;
  }

 private:
  // The times in s, moved by `side` of their spacing (-1, 0, 1) in the direction of integration.
  static Value times(const VectorField& field, const std::vector<double>& ts, DType dtype, int side) {
    const auto moved = [&](double to) {
      Array a(dtype, {static_cast<std::int64_t>(ts.size())});
      for (std::size_t i = 0; i < ts.size(); ++i)
        a.set(static_cast<std::int64_t>(i), side == 0 ? ts[i] : next_after(ts[i], to, dtype));
      return field.time(constant(a));
    };
    if (side == 0) return moved(0);
    // Which way is forward may only be known when the program runs.
    const Value up = moved(infinity), down = moved(-infinity);
    return side > 0 ? maximum(up, down) : minimum(up, down);
  }

  Controller inner_;
  std::vector<double> step_ts_, jump_ts_;
};

}  // namespace

Clip::Clip(Controller inner, std::vector<double> step_ts, std::vector<double> jump_ts)
    : Controller(ClipRule(std::move(inner), std::move(step_ts), std::move(jump_ts))) {}

}  // namespace hotloop::ode
