#include "ode/events.h"

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/resolution.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/region.h"
#include "ode/interpolant.h"
#include "ops/composed/bounded_while.h"

namespace hotloop::ode {
namespace {

// Carries the side of a function that is zero: no value that a function has otherwise.
double side_of_zero(DType dtype) { return dtype == DType::F32 ? 1e-30 : 1e-200; }

// x, a zero of g, with the derivatives of that equation, to any order: dx = - dg / g', where what g captures moves g by dg, and g' is its
// slope at x, which has derivatives itself. Not of what x was computed from. Where it is not wanted nothing is divided by.
class RootRule {
 public:
  explicit RootRule(std::shared_ptr<const Graph> g) : g_(std::move(g)) {}

  // at: x, wanted, captures...
  static Value root(const std::shared_ptr<const RootRule>& rule, std::span<const Value> at) {
    const auto body = trace([](std::span<const Value> v) { return std::vector<Value>{v[0]}; }, ir::types_of(at), name);
    const auto derivative = [rule](std::span<const Value> v) {
      const std::size_t n = v.size() / 2;
      std::vector<Value> moved(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(n));
      moved[0] = root(rule, v.first(n));
      return std::vector<Value>{moved[0], rule->tangent(moved, v.subspan(n))};
    };
    return call_with_rule(body, at, name, derivative)[0];
  }

 private:
  Value tangent(std::span<const Value> at, std::span<const Value> tangents) const {
    const Value x = at[0];
    const auto captures = at.subspan(2);
    std::vector<Value> directions;
    for (std::size_t i = 0; i < captures.size(); ++i)
      directions.push_back(is_float(captures[i].dtype()) ? tangents[2 + i] : Value{});
    const auto along = [&](Value of_x, std::span<const Value> of_captures) {
      std::vector<Value> primals = {x}, all = {of_x};
      primals.insert(primals.end(), captures.begin(), captures.end());
      all.insert(all.end(), of_captures.begin(), of_captures.end());
      const Value change = jvp([&](std::span<const Value> v) { return inline_graph(*g_, v); }, primals, all).second[0];
      return change.defined() ? change : zeros_like(x);
    };
    const Value change = along({}, directions);
    const Value slope = along(ones_like(x), std::vector<Value>(captures.size()));
    const Value usable = bit_and(at[1], not_equal(slope, zeros_like(x)));
    return -change / select(usable, slope, ones_like(x));
  }

  static constexpr const char* name = "ode.event_root";
  std::shared_ptr<const Graph> g_;
};

Value differentiable_root(const std::function<Value(Value)>& g, Value x, Value wanted) {
  const auto of_x = [&](std::span<const Value> v) { return std::vector<Value>{g(v[0])}; };
  const ir::Region region = ir::trace_region("ode.event", of_x, std::vector<ValueType>{x.type()});
  std::vector<Value> at = {x, wanted};
  at.insert(at.end(), region.captures.begin(), region.captures.end());
  return RootRule::root(std::make_shared<const RootRule>(region.graph), at);
}

}  // namespace

EventFinder::EventFinder(const std::vector<Event>& events, const VectorField& field, const Tree<Value>& args)
    : events_(events), field_(field), args_(args) {}

Value EventFinder::function(std::size_t i, Value s, const Leaves& y) const {
  const Value g = events_[i].function(field_.time(s), field_.like().unflatten(y), args_);
  if (!g.defined() || g.rank() != 0 || !is_float(g.dtype()))
    throw UserError(
        "ode.solve", "the function of an event must give a float scalar",
        "event " + std::to_string(i) + " = " + (g.defined() ? g.type().str() : "an undefined value"),
        g.defined() && g.dtype() == DType::Bool ? "what crosses zero, y - 1 in place of y < 1" : "one number");
  return g.dtype() == s.dtype() ? g : cast(g, s.dtype());
}

Leaves EventFinder::values(Value s, const Leaves& y) const {
  Leaves values;
  for (std::size_t i = 0; i < events_.size(); ++i) values.push_back(function(i, s, y));
  return values;
}

EventFinder::Outcome EventFinder::find(const StepInput& step, const StepResult& result, Value accepted,
                                       const Leaves& before, const Leaves& after) const {
  const DType dtype = step.t0.dtype();
  const Value zero = constant(0, dtype), one = constant(1, dtype), length = step.t1 - step.t0;
  const Value tiny = constant(side_of_zero(dtype), dtype);
  const double width = dtype == DType::F32 ? 1e-6 : 1e-14;  // to which places are located
  const auto time_at = [&](Value x) { return step.t0 + x * length; };
  const auto at = [&](Value x) { return interpolate(step.y0, result.interpolant, x); };
  Outcome outcome;
  Value first = one;  // place of the first crossing in the step
  Leaves crosses, places;
  outcome.crossing.happened = constant(0, DType::Bool);
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const Value rises = bit_and(less(before[i], zero), greater_equal(after[i], zero));
    const Value falls = bit_and(greater(before[i], zero), less_equal(after[i], zero));
    Value crossed = events_[i].direction > 0 ? rises : events_[i].direction < 0 ? falls : bit_or(rises, falls);
    if (accepted.defined()) crossed = bit_and(crossed, accepted);
    // Bisection that falls back from Illinois' false position, to the last digits of x. From its own event on a function has a side but no
    // value: false position would look within rounding of that event, and find it again.
    const auto g = [&](Value x) { return function(i, time_at(x), at(x)); };
    const auto open = [&](std::span<const Value> c) {
      return bit_and(crossed, greater(c[1] - c[0], constant(width, dtype)));
    };
    const auto narrow = [&](std::span<const Value> c) {
      const Value middle = 0.5 * (c[0] + c[1]);
      const Value between = c[0] - c[2] * (c[1] - c[0]) / (c[3] - c[2]);
      const Value inside = bit_and(greater(between, c[0]), less(between, c[1]));
      const Value bisect = bit_or(equal(c[4], one), less_equal(abs(c[2]), tiny));
      const Value x = select(bit_or(bisect, logical_not(inside)), middle, between);
      const Value value = g(x);
      const Value left = equal(sign(value), sign(c[2]));  // the crossing lies to the right of x
      return std::vector<Value>{select(left, x, c[0]), select(left, c[1], x), select(left, value, c[2]),
                                select(left, c[3], value), 1.0 - c[4]};
    };
    const auto bracket =
        ir::bounded_while("ode.event", open, narrow, std::vector<Value>{zero, one, before[i], after[i], zero}, 120)
            .carry;
    // Where the state changes it starts again from the side it came from, else beyond: on the wrong side by rounding, the same
    // crossing would be met again.
    const Value x = stop_gradient(events_[i].change ? bracket[0] : bracket[1]);
    const Value root = differentiable_root(g, x, crossed);
    const Value sooner = bit_or(less(x, stop_gradient(first)), logical_not(outcome.crossing.happened));
    first = select(bit_and(crossed, sooner), root, first);
    outcome.crossing.happened = bit_or(outcome.crossing.happened, crossed);
    crosses.push_back(crossed);
    places.push_back(x);
  }
  outcome.crossing.t = time_at(first);
  const Leaves there = at(first);
  // Events at one place happen together: places are the same but for the last digits of x, or of time, and a function that has left its side there
  // would not be seen to cross later.
  const Value near =
      stop_gradient(first + 2 * width + (4 * resolution(dtype)) * maximum(abs(step.t0), abs(step.t1)) / length);
  Leaves happen;
  outcome.count = constant(0, DType::I32);
  for (std::size_t i = 0; i < events_.size(); ++i) {
    Value here = crosses[i];
    if (events_.size() > 1) {
      const Value left =
          not_equal(sign(stop_gradient(function(i, outcome.crossing.t, there))), sign(stop_gradient(before[i])));
      here = bit_and(here, bit_or(less_equal(places[i], near), left));
    }
    happen.push_back(here);
    outcome.count = outcome.count + cast(here, DType::I32);
  }
  outcome.terminates = constant(0, DType::Bool);
  outcome.y = there;
  Value changed;
  for (std::size_t i = 0; i < events_.size(); ++i) {
    if (events_[i].terminal) outcome.terminates = bit_or(outcome.terminates, happen[i]);
    if (!events_[i].change) continue;
    changed = changed.defined() ? bit_or(changed, happen[i]) : happen[i];
    const Tree<Value> other =
        events_[i].change(field_.time(outcome.crossing.t), field_.like().unflatten(outcome.y), args_);
    if (other.names() != field_.like().names())
      throw UserError("ode.solve", "the change of an event must give a tree like the state",
                      std::to_string(other.num_leaves()) + " leaves");
    const Leaves leaves = other.flatten();
    for (std::size_t k = 0; k < leaves.size(); ++k)
      if (leaves[k].type() != outcome.y[k].type())
        throw UserError("ode.solve",
                        "the change of an event must give the state's shapes and dtypes, " + outcome.y[k].type().str(),
                        leaves[k].type().str(), "a copy of the state with what changes replaced");
    for (std::size_t k = 0; k < leaves.size(); ++k) outcome.y[k] = select(happen[i], leaves[k], outcome.y[k]);
  }
  outcome.crossing.y = there;
  outcome.values = values(outcome.crossing.t, outcome.y);
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const Value side = cond(
        happen[i], [&](std::span<const Value>) { return Leaves{side_after(i, outcome, before[i], length, changed)}; },
        [&](std::span<const Value>) { return Leaves{zero}; }, {})[0];
    outcome.values[i] = select(happen[i], stop_gradient(side), outcome.values[i]);
  }
  return outcome;
}

// After its own event a function is zero, and rounding may put it on either side. Where it goes from there tells: beyond, unless the event
// changes the state; then along its slope, as up again for a ball that bounces and on for a clock. A change that moves the function
// itself away from zero leaves no doubt; one that puts it there, as a ball on the floor, is the slope's again, whatever its last digits.
Value EventFinder::side_after(std::size_t i, const Outcome& outcome, Value before, Value length, Value changed) const {
  const Value t = outcome.crossing.t;
  const double tiny = side_of_zero(t.dtype());
  const Value beyond = sign(before) * -tiny;
  if (!changed.defined()) return beyond;
  std::vector<Value> at = {t}, along = {ones_like(t)};
  const Leaves slopes = field_(t, outcome.y);
  at.insert(at.end(), outcome.y.begin(), outcome.y.end());
  along.insert(along.end(), slopes.begin(), slopes.end());
  const auto [now, slope] = jvp(
      [&](std::span<const Value> v) { return std::vector<Value>{function(i, v[0], Leaves(v.begin() + 1, v.end()))}; },
      at, along);
  const Value rate = slope[0].defined() ? slope[0] : zeros_like(t);
  const Value direction = select(equal(rate, zeros_like(t)), sign(before), sign(rate));
  const Value unmoved = equal(now[0], function(i, t, outcome.crossing.y));
  const Value at_zero = less_equal(abs(now[0]), (256 * resolution(t.dtype())) * abs(rate * length));
  return select(changed, select(bit_or(unmoved, at_zero), direction * tiny, now[0]), beyond);
}

}  // namespace hotloop::ode
