#include <cmath>
#include <utility>

#include "core/index.h"
#include "core/print_number.h"
#include "core/resolution.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/region.h"
#include "ode/events.h"
#include "ode/saving.h"
#include "ops/composed/bounded_while.h"
#include "ops/rules/arguments.h"

namespace hotloop::ode {
namespace {

Value code(Result result) { return constant(static_cast<double>(result), DType::I32); }

Value or_else(Value condition, Value a, Value b) { return condition.defined() ? select(condition, a, b) : a; }

// What the loop over steps carries. Members that are undefined or empty at the start stay so.
struct Progress {
  Value t0, t1;  // the step to be attempted, in s
  Leaves y, solver, controller;
  Value made_jump;
  Value num_accepted, num_evaluations, result;
  Saved saved;
  Leaves event_values;
  Value num_events;

  template <class F> void visit(F&& f) {
    const auto all = [&](Leaves& leaves) {
      for (Value& v : leaves) f(v);
    };
    f(t0), f(t1);
    all(y), all(solver), all(controller);
    f(made_jump), f(num_accepted), f(num_evaluations), f(result);
    f(saved.next), all(saved.at_ts);
    f(saved.step_times), all(saved.at_steps);
    f(saved.starts), f(saved.ends), f(saved.lengths);
    for (Leaves& leaves : saved.coefficients) all(leaves);
    all(event_values), f(num_events);
  }
  std::vector<Value> pack() {
    std::vector<Value> values;
    visit([&](Value& v) {
      if (v.defined()) values.push_back(v);
    });
    return values;
  }
  // This, with other values.
  Progress with(std::span<const Value> values) const {
    Progress result = *this;
    std::size_t next = 0;
    result.visit([&](Value& v) {
      if (v.defined()) v = values[next++];
    });
    return result;
  }
};

class Integration {
 public:
  Integration(const Field& field, const Solver& solver, Scalar t0, Scalar t1, const Tree<Value>& y0,
              const Options& options)
      : solver_(solver.rule()),
        controller_(options.controller.rule()),
        times_known_(t0.is_number() && t1.is_number()),
        options_(options),
        direction_(direction_of(t0, t1)),
        field_(field, options.args, y0, direction_),
        y0_(y0.flatten()),
        saver_(options.saveat, y0_, t0, t1, direction_, field_.time_dtype(), options.max_steps),
        events_(options.events, field_, options.args) {
    const DType dtype = field_.time_dtype();
    if (y0_.empty()) throw UserError("ode.solve", "the state must have a leaf", "an empty tree");
    if (options.max_steps <= 0)
      throw UserError("ode.solve", "max_steps must be positive", std::to_string(options.max_steps));
    if (controller_.is_adaptive() && solver_.error_order() == 0)
      throw UserError("ode.solve", "an adaptive controller needs a solver with an error estimate", solver_.name(),
                      "ConstantStep(), or Tsit5()");
    if (options.dt0 && options.dt0->is_number() && !(options.dt0->number() > 0))
      throw UserError("ode.solve", "dt0 must be positive, also backwards in time", print_number(options.dt0->number()));
    start_ = along(t0.as(dtype));
    end_ = along(t1.as(dtype));
  }

  Solution run() {
    Progress progress = start();
    const auto running = [&](std::span<const Value> v) {
      const Progress now = progress.with(v);
      return bit_and(less(now.t0, end_), equal(now.result, code(Result::Success)));
    };
    const auto attempt = [&](std::span<const Value> v) { return step(progress.with(v)).pack(); };
    const std::string residuals = options_.adjoint.rule().residuals();
    if (!options_.adjoint.rule().nests()) {
      const LoopResult loop =
          ir::bounded_while("ode.solve", running, attempt, progress.pack(), options_.max_steps, residuals);
      return solution(progress.with(loop.carry), loop.count);
    }
    // Segments of steps; the number of steps is carried, since no single loop counts them.
    const auto length = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(options_.max_steps))));
    const Value most = constant(static_cast<double>(options_.max_steps), DType::I32);
    const auto before_most = [&](std::span<const Value> v) { return bit_and(running(v.subspan(1)), less(v[0], most)); };
    const auto counted = [&](std::span<const Value> v) {
      std::vector<Value> next = attempt(v.subspan(1));
      next.insert(next.begin(), v[0] + 1);
      return next;
    };
    const auto segment = [&](std::span<const Value> v) {
      return ir::bounded_while("ode.solve", before_most, counted, v, length, residuals).carry;
    };
    std::vector<Value> carry = progress.pack();
    carry.insert(carry.begin(), constant(0, DType::I32));
    carry =
        ir::bounded_while("ode.solve", before_most, segment, carry, divided_up(options_.max_steps, length), residuals)
            .carry;
    return solution(progress.with(std::span<const Value>(carry).subspan(1)), carry[0]);
  }

 private:
  static Scalar direction_of(Scalar t0, Scalar t1) {
    if (t0.is_number() && t1.is_number()) return t0.number() <= t1.number() ? 1 : -1;
    const DType dtype = t0.is_number() ? t1.as(DType::F64).dtype() : t0.as(DType::F64).dtype();
    const Value a = t0.as(dtype), b = t1.as(dtype);
    return select(less_equal(a, b), like(a, 1), like(a, -1));
  }
  Value along(Value t) const {
    if (direction_.is_number()) return direction_.number() > 0 ? t : -t;
    return direction_.as(t.dtype()) * t;
  }

  Progress start() {
    const DType dtype = field_.time_dtype();
    Progress p;
    p.t0 = within(start_, end_).t0;
    p.y = y0_;
    p.solver = solver_.start(field_, p.t0, y0_);
    const Value dt0 = options_.dt0 ? options_.dt0->as(dtype) : Value{};
    std::tie(p.t1, p.controller) = controller_.start(field_, p.t0, y0_, dt0, solver_.error_order());
    p.t1 = within(p.t0, p.t1).t1;
    if (controller_.makes_jumps()) p.made_jump = constant(0, DType::Bool);
    p.num_accepted = constant(0, DType::I32);
    p.num_evaluations = constant(field_.num_evaluations(), DType::I32);
    p.result = code(Result::Success);
    if (events_.any()) {
      p.event_values = events_.values(p.t0, y0_);
      p.num_events = constant(0, DType::I32);
    }
    if (saver_.any()) p.saved = saver_.start(interpolant_degree(), start_, end_);
    return p;
  }

  // How many coefficients a step gives, found by tracing one that is thrown away.
  std::size_t interpolant_degree() const {
    if (!options_.saveat.dense) return 0;
    std::size_t degree = 0;
    VectorField field = field_;
    trace_nested([&] {
      const Leaves state = solver_.start(field, start_, y0_);
      const StepInput input{start_, end_, y0_, state, tolerance(), {}};
      degree = solver_.step(field, input).interpolant.size();
    });
    return degree;
  }
  template <class F> static void trace_nested(F&& f) {
    Graph scratch("scratch");
    TraceScope scope(scratch, true);
    f();
  }

  std::function<Leaves(const Leaves&)> tolerance() const {
    return [this](const Leaves& y) { return controller_.tolerance(y); };
  }

  Progress step(const Progress& now) {
    const int evaluations_before = field_.num_evaluations();
    const StepInput input{now.t0, now.t1, now.y, now.solver, tolerance(), now.made_jump};
    StepResult taken = solver_.step(field_, input);
    const Value evaluations = taken.num_evaluations.defined()
                                  ? taken.num_evaluations
                                  : constant(field_.num_evaluations() - evaluations_before, DType::I32);
    const Proposal next = controller_.propose(
        field_, {now.t0, now.t1, now.y, taken.y1, taken.error, solver_.error_order(), now.controller, taken.failed});

    // Nothing follows from the inside of a rejected step, which may be infinite: no derivative does either, though events and saved
    // rows are written by loops that read it.
    if (next.keep.defined())
      for (Leaves& term : taken.interpolant)
        for (Value& leaf : term) leaf = select(next.keep, leaf, zeros_like(leaf));

    Progress after = now;
    const Value begin = minimum(next.t0, end_);
    StepEnds ends = within(begin, next.t1);
    // A step that was rejected is not tried again.
    if (next.keep.defined()) {
      const Value again = bit_and(logical_not(next.keep), greater_equal(ends.t1, now.t1));
      ends.t1 = select(again, now.t0 + stop_gradient(0.5 * (now.t1 - now.t0)), ends.t1);
    }
    after.t0 = ends.t0;
    after.t1 = ends.t1;
    const auto keep = [&](const Leaves& fresh, const Leaves& old) {
      Leaves kept;
      for (std::size_t i = 0; i < fresh.size(); ++i)
        kept.push_back(next.keep.defined() ? select(next.keep, fresh[i], old[i]) : fresh[i]);
      return kept;
    };
    after.y = keep(taken.y1, now.y);
    after.solver = keep(taken.state, now.solver);
    after.controller = next.state;
    if (now.made_jump.defined()) after.made_jump = or_else(next.keep, greater(ends.t0, begin), now.made_jump);
    const Value one = constant(1, DType::I32);
    after.num_accepted = now.num_accepted + (next.keep.defined() ? cast(next.keep, DType::I32) : one);
    after.num_evaluations = now.num_evaluations + evaluations;
    // The last step ends just before a jump at t1, but what is saved there is its end too.
    Value reached = now.t1;
    if (controller_.makes_jumps()) reached = select(greater_equal(after.t0, end_), end_, reached);
    if (events_.any()) reached = meet_events(now, input, taken, next, after, reached);
    after.result = select(equal(after.result, code(Result::Success)), outcome(next, taken, after), after.result);
    if (saver_.any())
      saver_.save(after.saved,
                  {now.t0, now.t1, reached, now.y, taken, next.keep, now.num_accepted, after.y, margin_at(now.t0)},
                  options_.adjoint.rule().residuals());
    return after;
  }

  // Ends the step at the first event in it, if there is one, and starts the next one there. Gives where the step ended.
  Value meet_events(const Progress& now, const StepInput& input, const StepResult& taken, const Proposal& next,
                    Progress& after, Value reached) const {
    const Leaves at_end = events_.values(reached, after.y);  // where the step was rejected, that of its start
    const auto met = events_.find(input, taken, next.keep, now.event_values, at_end);
    const Value happened = met.crossing.happened, t = met.crossing.t;
    const auto where = [&](const Leaves& a, const Leaves& b) {
      Leaves chosen;
      for (std::size_t i = 0; i < a.size(); ++i) chosen.push_back(select(happened, a[i], b[i]));
      return chosen;
    };
    const StepEnds ends = within(t, t + stop_gradient(next.t1 - next.t0));
    after.y = where(met.y, after.y);
    if (!after.solver.empty())
      after.solver = cond(
          happened, [&](std::span<const Value>) { return solver_.start(field_, ends.t0, met.y); },
          [&](std::span<const Value>) { return after.solver; }, {});
    after.t0 = select(met.terminates, t, select(happened, ends.t0, after.t0));
    after.t1 = select(happened, ends.t1, after.t1);
    if (after.made_jump.defined()) after.made_jump = bit_and(after.made_jump, logical_not(happened));
    // On which side a function is after its own event is known, though rounding may put it on the other one.
    for (std::size_t i = 0; i < at_end.size(); ++i) {
      const Value unchanged = next.keep.defined() ? select(next.keep, at_end[i], now.event_values[i]) : at_end[i];
      after.event_values[i] = select(happened, met.values[i], unchanged);
    }
    after.num_events = now.num_events + met.count;
    after.result = select(met.terminates, code(Result::Event), now.result);
    return select(happened, t, reached);
  }

  // A step from t0 to t1 within what the controller allows and the end.
  StepEnds within(Value t0, Value t1) const {
    const auto margin = [this](Value times) { return margin_at(times); };
    if (!controller_.makes_jumps()) {
      StepEnds ends = controller_.limit(field_, t0, t1, margin);
      ends.t1 = clipped(ends.t1);
      return ends;
    }
    StepEnds ends = controller_.limit(field_, t0, clipped(t1), margin);
    // Beyond a jump at the end nothing is left. The step before it moves with the end.
    const Value left = controller_.limit(field_, ends.t1, end_, margin).t0;
    ends.t1 = select(greater_equal(left, end_), end_ + stop_gradient(ends.t1 - end_), ends.t1);
    ends.t0 = minimum(ends.t0, end_);
    return ends;
  }

  // Within which a time that a step must meet is met. Times are sums that began at the start.
  Value margin_at(Value times) const {
    return stop_gradient((50 * resolution(times.dtype())) *
                         maximum(abs(broadcast_to(start_, times.shape())), abs(times)));
  }
  // The end of a step, within the solve's.
  Value clipped(Value t1) const { return select(greater(t1, stop_gradient(end_ - margin_at(end_))), end_, t1); }

  Value outcome(const Proposal& next, const StepResult& taken, const Progress& after) const {
    Value result = next.result.defined() ? next.result : code(Result::Success);
    const Value stuck = bit_and(less(after.t0, end_), less_equal(after.t1, after.t0));
    Value reason = next.finite.defined() ? select(next.finite, code(Result::StepTooSmall), code(Result::NonFinite))
                                         : code(Result::StepTooSmall);
    if (!taken.failed.defined()) return select(stuck, reason, result);
    const Value failure = select(all_finite(taken.y1), code(Result::NewtonFailed), code(Result::NonFinite));
    if (next.result.defined())
      result = select(bit_and(taken.failed, equal(result, code(Result::StepTooSmall))), failure, result);
    result = select(stuck, select(taken.failed, failure, reason), result);
    // Without a controller that could reject the step.
    return controller_.is_adaptive() ? result : select(taken.failed, failure, result);
  }

  static Value all_finite(const Leaves& y) {
    Value finite;
    for (const Value& leaf : y) {
      const Value zero = sum(stop_gradient(leaf) * 0.0);
      finite = finite.defined() ? bit_and(finite, equal(zero, zeros_like(zero))) : equal(zero, zeros_like(zero));
    }
    return finite;
  }

  // Where there is no time to go no step is taken, yet y(t1) moves with t1 - t0 as it would after one, and rows there as well. `end` with that
  // derivative, which is traced where it is asked for; times that are numbers have none.
  void move_with_times(Progress& end) const {
    if (times_known_) return;
    const std::size_t n = end.y.size(), rows = end.saved.at_ts.size();
    // y..., rows..., t0, start, end, times of the rows, what the field captures.
    std::vector<Value> operands = end.y;
    operands.insert(operands.end(), end.saved.at_ts.begin(), end.saved.at_ts.end());
    operands.insert(operands.end(), {end.t0, start_, end_});
    if (rows > 0) operands.push_back(saver_.times());
    const std::size_t at_t0 = n + rows, num_own = operands.size();
    std::vector<ValueType> at = {start_.type()};
    for (const Value& leaf : end.y) at.push_back(leaf.type());
    const ir::Region slope = ir::trace_region(
        "slope", [&](std::span<const Value> v) { return field_(v[0], Leaves(v.begin() + 1, v.end())); }, at);
    operands.insert(operands.end(), slope.captures.begin(), slope.captures.end());
    const auto identity = [at_t0](std::span<const Value> v) {
      return std::vector<Value>(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(at_t0) + 1);
    };
    const auto rule = [n, rows, at_t0, num_own, identity, field = slope.graph](std::span<const Value> v) {
      const std::size_t num_operands = v.size() / 2;
      std::vector<Value> outputs = identity(v), inputs = {v[at_t0 + 1]};
      inputs.insert(inputs.end(), v.begin(), v.begin() + static_cast<std::ptrdiff_t>(n));
      for (const Value& capture : v.subspan(num_own, num_operands - num_own)) inputs.push_back(capture);
      const Leaves slopes = inline_graph(*field, inputs);
      const Value at_once = equal(v[at_t0 + 1], v[at_t0 + 2]);
      const auto tangents = v.last(num_operands);
      const auto add = [&](Value tangent, Value change, Value where) {
        outputs.push_back(tangent + select(broadcast_to(where, change.shape()), change, zeros_like(change)));
      };
      const Value longer = tangents[at_t0 + 2] - tangents[at_t0 + 1];
      for (std::size_t i = 0; i < n; ++i) add(tangents[i], slopes[i] * cast(longer, slopes[i].dtype()), at_once);
      for (std::size_t i = 0; i < rows; ++i) {
        const Value times = v[at_t0 + 3], begin = broadcast_to(v[at_t0 + 1], times.shape());
        Value later = tangents[at_t0 + 3] - broadcast_to(tangents[at_t0 + 1], times.shape());
        Value there = bit_and(equal(times, begin), broadcast_to(at_once, times.shape()));
        for (int k = 0; k < slopes[i].rank(); ++k) {
          later = expand_dims(later, k + 1);
          there = expand_dims(there, k + 1);
        }
        const Value tangent = tangents[n + i];
        add(tangent,
            broadcast_to(expand_dims(slopes[i], 0), tangent.shape()) *
                broadcast_to(cast(later, tangent.dtype()), tangent.shape()),
            there);
      }
      outputs.push_back(select(at_once, tangents[at_t0 + 2], tangents[at_t0]));
      return outputs;
    };
    const auto moved = call_with_rule(trace(identity, ir::types_of(operands), "ode.end"), operands, "ode.end", rule);
    const auto part = [&](std::size_t from, std::size_t count) {
      return Leaves(moved.begin() + static_cast<std::ptrdiff_t>(from),
                    moved.begin() + static_cast<std::ptrdiff_t>(from + count));
    };
    end.y = part(0, n);
    end.saved.at_ts = part(n, rows);
    end.t0 = moved[at_t0];
  }

  Solution solution(Progress end, Value num_steps) const {
    Solution s;
    const Tree<Value>& like = field_.like();
    move_with_times(end);
    s.t1 = field_.time(end.t0);
    s.y1 = like.unflatten(end.y);
    const Value finite = all_finite(end.y),
                short_of = select(less(end.t0, end_), code(Result::MaxSteps), code(Result::NonFinite)),
                stopped = select(greater_equal(end.t0, end_), code(Result::Success), short_of);
    const Value success = equal(end.result, code(Result::Success));
    s.result = select(success, select(finite, stopped, code(Result::NonFinite)), end.result);
    s.stats.num_steps = num_steps;
    s.stats.num_accepted = end.num_accepted;
    s.stats.num_rejected = num_steps - end.num_accepted;
    s.stats.num_evaluations = end.num_evaluations;
    s.stats.num_events = end.num_events;
    const auto [ts, ys] = saver_.rows(end.saved, y0_, start_, end.y, end.t0);
    if (ts.defined()) {
      s.ts = ts;
      s.ys = like.unflatten(ys);
    }
    if (options_.saveat.dense)
      s.dense = std::make_shared<const Solution::Dense>(Solution::Dense{
          end.saved.ends, end.saved.starts, end.saved.lengths, end.saved.coefficients, direction_, like});
    return s;
  }

  const StepRule& solver_;
  const StepSizeRule& controller_;
  bool times_known_;
  const Options& options_;
  Scalar direction_;
  VectorField field_;
  Leaves y0_;
  Saver saver_;
  EventFinder events_;
  Value start_, end_;
};

}  // namespace

Solution solve(const Field& field, const Solver& solver, Scalar t0, Scalar t1, const Tree<Value>& y0,
               const Options& options) {
  for (const auto& [name, time] : {std::pair("t0", t0), std::pair("t1", t1)})
    if (time.is_number() && std::isnan(time.number()))
      throw UserError("ode.solve", std::string(name) + " must be a number", "nan");
  return options.adjoint.rule().solve({field, solver, t0, t1, y0, options}, [](const Problem& p) {
    return Integration(p.field, p.solver, p.t0, p.t1, p.y0, p.options).run();
  });
}

Solution AdjointRule::solve(const Problem& problem, const TakeSteps& take_steps) const { return take_steps(problem); }

}  // namespace hotloop::ode
