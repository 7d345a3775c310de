#include "minimizers/line_search.h"

#include <limits>

#include "hotloop/ops.h"

namespace hotloop::minimizers {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double longest_step = 1e20;

Value f64(double x) { return constant(x, DType::F64); }
Value truth(bool x) { return constant(x ? 1 : 0, DType::Bool); }
Value both(Value a, Value b) { return bit_and(a, b); }
Value either(Value a, Value b) { return bit_or(a, b); }
Value closer(Value a, Value b, Value to) { return less(abs(a - to), abs(b - to)); }

LinePoint choose(Value condition, const LinePoint& a, const LinePoint& b) {
  return {select(condition, a.step, b.step), select(condition, a.value, b.value), select(condition, a.slope, b.slope)};
}

// The function less its promised decrease, whose minimum lies where there is enough of it.
LinePoint less_promise(const LinePoint& p, Value promised) {
  return {p.step, p.value - p.step * promised, p.slope - promised};
}

// The cubic through values and slopes of two points: what the formulas of its minimiser share.
struct Cubic {
  Value theta, gamma;
  Cubic(const LinePoint& a, const LinePoint& b) {
    theta = 3.0 * (a.value - b.value) / (b.step - a.step) + a.slope + b.slope;
    const Value scale = maximum(maximum(abs(theta), maximum(abs(a.slope), abs(b.slope))), f64(1e-300));
    const Value relative = theta / scale;
    gamma = scale * sqrt(maximum(square(relative) - (a.slope / scale) * (b.slope / scale), f64(0)));
  }
};

struct Interval {
  LinePoint best, other;
  Value is_bracketed, step;
};

// The interval after trial `t`, and the next trial: section 4 of the paper, by its four cases.
Interval narrowed(const LinePoint& x, const LinePoint& y, const LinePoint& t, Value is_bracketed, Value low,
                  Value high) {
  const Value higher = greater(t.value, x.value), turned = less(t.slope * sign(x.slope), f64(0));
  const Value flatter = less(abs(t.slope), abs(x.slope)), forward = greater(t.step, x.step);
  const Value back = x.step - t.step;
  const Cubic cubic(x, t);
  const Value from_x = select(forward, cubic.gamma, -cubic.gamma), from_t = -from_x;
  const Value secant = t.step + t.slope / (t.slope - x.slope) * back;

  // 1: a higher value. The cubic's minimum, or half way to the parabola's if that is farther.
  const Value r1 = (from_x - x.slope + cubic.theta) / (from_x - x.slope + from_x + t.slope);
  const Value cubic1 = x.step - r1 * back;
  const Value parabola = x.step - x.slope / ((t.value - x.value) / back + x.slope) / 2.0 * back;
  const Value step1 = select(closer(cubic1, parabola, x.step), cubic1, cubic1 + (parabola - cubic1) / 2.0);

  // 2: a lower value, and the slope has turned. The farther of the cubic's minimum and the secant's zero.
  const Value r2 = (from_t - t.slope + cubic.theta) / (from_t - t.slope + from_t + x.slope);
  const Value cubic2 = t.step + r2 * back;
  const Value step2 = select(closer(secant, cubic2, t.step), cubic2, secant);

  // 3: lower and flatter. The cubic may have no minimum beyond t.
  const Value r3 = (from_t - t.slope + cubic.theta) / (from_t + (x.slope - t.slope) + from_t);
  const Value has_minimum = both(less(r3, f64(0)), not_equal(from_t, f64(0)));
  const Value cubic3 = select(has_minimum, t.step + r3 * back, select(forward, high, low));
  const Value is_closer = closer(cubic3, secant, t.step);
  const Value inner = select(is_closer, cubic3, secant), bound = t.step + 0.66 * (y.step - t.step);
  const Value within = select(forward, minimum(bound, inner), maximum(bound, inner));
  const Value outer = minimum(maximum(select(is_closer, secant, cubic3), low), high);
  const Value step3 = select(is_bracketed, within, outer);

  // 4: lower and as steep.
  const Cubic ahead(t, y);
  const Value from_y = select(greater(t.step, y.step), -ahead.gamma, ahead.gamma);
  const Value r4 = (from_y - t.slope + ahead.theta) / (from_y - t.slope + from_y + y.slope);
  const Value step4 = select(is_bracketed, t.step + r4 * (y.step - t.step), select(forward, high, low));

  Interval next;
  next.step = select(higher, step1, select(turned, step2, select(flatter, step3, step4)));
  next.is_bracketed = either(is_bracketed, either(higher, turned));
  next.other = choose(higher, t, choose(turned, x, y));
  next.best = choose(higher, x, t);
  return next;
}

}  // namespace

Value is_finite(Value x) { return less(abs(x), like(x, infinity)); }

LineSearch LineSearch::from(Value value, Value slope, Value first_step) {
  LineSearch s;
  s.start = s.best = s.other = {f64(0), value, slope};
  s.step = first_step;
  s.is_bracketed = truth(false);
  s.is_early = truth(true);
  s.width = f64(longest_step);
  s.width_before = f64(2 * longest_step);
  s.low = f64(0);
  s.high = 5.0 * first_step;
  s.limit = f64(infinity);
  s.is_last = truth(false);
  s.trials = constant(0, DType::I32);
  return s;
}

SearchVerdict advance(const LineSearch& search, Value value, Value slope, const LineSearchSettings& settings) {
  const LinePoint trial = {search.step, value, slope};
  const Value finite = both(is_finite(value), is_finite(slope));
  const Value promised = settings.decrease * search.start.slope;
  const Value enough = less_equal(value, search.start.value + search.step * promised);
  const Value is_lower = less(value, search.start.value);

  const Value flat = less_equal(abs(slope), settings.curvature * abs(search.start.slope));
  const Value noise = 4 * settings.resolution * abs(search.start.value);
  const Value approximate = both(less_equal(value, search.start.value + noise),
                                 both(greater_equal(slope, settings.curvature * search.start.slope),
                                      less_equal(slope, (2 * settings.decrease - 1) * search.start.slope)));

  LineSearch next = search;
  next.trials = search.trials + 1;
  next.is_early = both(search.is_early, logical_not(both(enough, greater_equal(slope, f64(0)))));
  const Value modified = both(next.is_early, both(less_equal(value, search.best.value), logical_not(enough)));
  const auto shown = [&](const LinePoint& p) { return choose(modified, less_promise(p, promised), p); };
  const auto restored = [&](const LinePoint& p) { return choose(modified, less_promise(p, -promised), p); };
  const Interval interval =
      narrowed(shown(search.best), shown(search.other), shown(trial), search.is_bracketed, search.low, search.high);
  const LinePoint best = restored(interval.best), other = restored(interval.other);

  // An interval that does not shrink to two thirds in two trials is halved.
  const Value bracketed = interval.is_bracketed, width = abs(other.step - best.step);
  const Value is_slow = both(bracketed, greater_equal(width, 0.66 * search.width_before));
  Value step = select(is_slow, best.step + 0.5 * (other.step - best.step), interval.step);
  Value low = select(bracketed, minimum(best.step, other.step), step + 1.1 * (step - best.step));
  Value high = select(bracketed, maximum(best.step, other.step), step + 4.0 * (step - best.step));
  const Value before_limit = minimum(f64(longest_step), best.step + 0.5 * (search.limit - best.step));
  step = minimum(maximum(step, f64(0)), before_limit);

  const auto where_finite = [&](Value a, Value b) { return select(finite, a, b); };
  next.best = choose(finite, best, search.best);
  next.other = choose(finite, other, search.other);
  next.is_bracketed = where_finite(bracketed, search.is_bracketed);
  next.is_early = where_finite(next.is_early, search.is_early);
  next.width = where_finite(select(bracketed, width, search.width), search.width);
  next.width_before = where_finite(select(bracketed, search.width, search.width_before), search.width_before);
  next.low = where_finite(low, search.low);
  next.high = where_finite(high, search.high);
  next.limit = where_finite(search.limit, search.step);
  next.step = where_finite(step, search.best.step + 0.25 * (search.step - search.best.step));

  const Value is_narrow = both(both(finite, bracketed), less_equal(high - low, settings.resolution * high));
  const Value exhausted = either(is_narrow, greater_equal(next.trials, constant(settings.trials, DType::I32)));
  const Value is_best = equal(next.best.step, search.step);
  const Value as_far_as_it_goes = both(enough, greater_equal(search.step, f64(longest_step)));
  const Value is_good = both(finite, either(either(both(enough, flat), approximate), as_far_as_it_goes));
  const Value is_best_found = both(is_lower, either(search.is_last, both(exhausted, is_best)));
  const Value accept = either(is_good, both(finite, is_best_found));
  const Value has_better = both(greater(next.best.step, f64(0)), less(next.best.value, search.start.value));
  const Value give_up = both(logical_not(accept), either(search.is_last, both(exhausted, logical_not(has_better))));
  next.step = select(exhausted, next.best.step, next.step);
  next.is_last = exhausted;
  return {accept, give_up, is_good, next};
}

}  // namespace hotloop::minimizers
