#include "hotloop/minimize.h"

#include <algorithm>

#include "core/resolution.h"
#include "hotloop/error.h"
#include "hotloop/functions.h"
#include "hotloop/ops.h"
#include "minimizers/evaluations.h"
#include "minimizers/flat.h"
#include "minimizers/implicit.h"
#include "minimizers/line_search.h"
#include "minimizers/vectors.h"

namespace hotloop {
namespace {

using namespace minimizers;

// What the loop carries. An iteration of it is an evaluation at x + step d, which the line search takes for the next x or not.
struct Progress {
  Value x, g, d;  // where the method is, the gradient there, the direction of the search
  LineSearch search;
  State state;     // of the method
  Value is_first;  // bool: x was not yet evaluated
  Value is_fresh;  // bool: the method knows of no step, d is -g
  Value iterations, status;

  template <class F> void visit(F&& f) {
    f(x), f(g), f(d);
    search.visit(f);
    for (Value& v : state) f(v);
    f(is_first), f(is_fresh), f(iterations), f(status);
  }
};

class Minimization {
 public:
  Minimization(const Objective& fn, const Flat& flat, const DescentRule& method, const MinimizeOptions& options)
      : fn_(fn), flat_(flat), method_(method), options_(options) {
    require_not_negative("minimize", {{"max_iterations", static_cast<double>(options.max_iterations)},
                                      {"max_evaluations", static_cast<double>(options.max_evaluations)},
                                      {"gradient_tolerance", options.gradient_tolerance},
                                      {"value_tolerance", options.value_tolerance}});
    settings_.resolution = resolution(flat_.dtype());
    settings_.curvature = method.curvature();
  }

  // x, the value, the gradient's norm, iterations, evaluations and status.
  std::vector<Value> run(const Tree<Value>& params) {
    Progress start;
    start.x = flat_.pack(params);
    start.g = start.d = zeros_like(start.x);
    start.search = LineSearch::from(constant(0, DType::F64), constant(0, DType::F64), constant(0, DType::F64));
    start.state = method_.start(start.x);
    start.is_first = start.is_fresh = constant(1, DType::Bool);
    start.iterations = constant(0, DType::I32);
    start.status = code(running);
    const auto [end, count] = evaluate_until_ended("minimize", start, most_evaluations(options_),
                                                   [&](const Progress& now) { return evaluated(now); });
    return {end.x, cast(end.search.start.value, value_dtype_), largest(end.g), end.iterations, count, end.status};
  }

 private:
  static LineSearch chosen(Value condition, LineSearch a, LineSearch b) {
    std::vector<Value> of_a;
    a.visit([&](Value& v) { of_a.push_back(v); });
    std::size_t next = 0;
    b.visit([&](Value& v) { v = select(condition, of_a[next++], v); });
    return b;
  }

  std::pair<Value, Value> value_and_gradient(Value x) {
    const Tree<Value> at = flat_.unpack(x);
    const auto [value, gradient] = hotloop::value_and_grad([&](const Tree<Value>& p) { return fn_(p); })(at);
    value_dtype_ = value.dtype();
    return {cast(value, DType::F64), flat_.pack(gradient)};
  }

  // A first step: 1 for a method that knows the curvature; else as long as what would repeat the last decrease, and at the start one
  // of length 1 at most.
  Value first_step(Value is_fresh, Value slope, Value decrease) const {
    const Value one = constant(1, DType::F64), cautious = minimum(one, reciprocal(sqrt(-slope)));
    return select(is_fresh, cautious, method_.has_unit_step() ? one : minimum(one, 2.02 * decrease / -slope));
  }

  Progress evaluated(const Progress& now) {
    const Value x = now.x + cast(now.search.step, flat_.dtype()) * now.d;
    const auto [value, g] = value_and_gradient(x);
    const SearchVerdict verdict = advance(now.search, value, inner(g, now.d), settings_);
    const Value norm = largest(g);
    const Value finite = bit_and(is_finite(value), is_finite(norm));
    const Value accept = bit_and(finite, bit_or(now.is_first, verdict.accept));
    const Value before = now.search.start.value;

    StepTaken taken{x - now.x, g - now.g, g, {}, accept, {}};
    taken.sy = inner(taken.s, taken.y);
    const Value sizes = sqrt(inner(taken.s, taken.s) * inner(taken.y, taken.y));
    const Value curved = greater(taken.sy, resolution(flat_.dtype()) * sizes);
    taken.is_usable = bit_and(bit_and(accept, curved), logical_not(now.is_first));
    const auto [state, direction] = method_.next(now.state, taken);
    const Value slope = inner(direction, g);

    Progress next = now;
    // A search that found nothing is repeated along the gradient, unless that is where it was.
    const Value give_up = bit_and(verdict.give_up, logical_not(accept));
    const Value restart = bit_or(give_up, bit_and(accept, greater_equal(slope, constant(0, DType::F64))));
    next.x = select(accept, x, now.x);
    next.g = select(bit_or(accept, now.is_first), g, now.g);
    next.d = select(restart, -next.g, select(accept, direction, now.d));
    next.state = method_.forget(restart, state, now.x);
    next.is_first = constant(0, DType::Bool);
    next.is_fresh = bit_or(restart, select(accept, now.is_first, now.is_fresh));
    next.iterations = now.iterations + cast(bit_and(accept, logical_not(now.is_first)), DType::I32);

    const Value begins = bit_or(accept, restart);
    const Value new_value = select(bit_or(accept, now.is_first), value, before);
    const Value new_slope = select(restart, -inner(next.g, next.g), slope);
    LineSearch fresh = LineSearch::from(new_value, new_slope,
                                        first_step(next.is_fresh, new_slope, maximum(before - value, like(value, 0))));
    next.search = chosen(bit_or(begins, now.is_first), fresh, verdict.next);

    const Value is_good = bit_and(verdict.is_good, logical_not(now.is_first));
    next.status = select(accept, status_after(next.iterations, is_good, before, value, norm), now.status);
    next.status = select(bit_and(give_up, now.is_fresh), code(Status::Stalled), next.status);
    next.status = select(bit_and(now.is_first, logical_not(finite)), code(Status::NonFinite), next.status);
    return next;
  }

  // After an evaluation that was accepted. A small change tells of a minimum where the search was a good one.
  Value status_after(Value iterations, Value is_good, Value before, Value value, Value norm) const {
    const Value flat = less_equal(norm, like(norm, options_.gradient_tolerance));
    const double tolerance = std::max(options_.value_tolerance, resolution(flat_.dtype()));
    const Value unchanged = less_equal(abs(before - value), tolerance * maximum(abs(before), abs(value)));
    const Value most = constant(static_cast<double>(options_.max_iterations), DType::I32);
    Value status = select(greater_equal(iterations, most), code(Status::MaxIterations), code(running));
    if (options_.value_tolerance > 0) status = select(bit_and(unchanged, is_good), code(Status::Value), status);
    return select(flat, code(Status::Gradient), status);
  }

  const Objective fn_;
  const Flat& flat_;
  const DescentRule& method_;
  const MinimizeOptions& options_;
  LineSearchSettings settings_;
  DType value_dtype_ = DType::F32;
};

}  // namespace

State minimizers::DescentRule::forget(Value condition, const State& state, Value x) const {
  State forgetful = start(x);
  for (std::size_t i = 0; i < state.size(); ++i) forgetful[i] = select(condition, forgetful[i], state[i]);
  return forgetful;
}

Minimum minimize(const Objective& fn, const Tree<Value>& params, const Descent& method,
                 const MinimizeOptions& options) {
  const Flat flat("minimize", params);
  const std::vector<Value> leaves = params.flatten();
  const ir::Region objective = ir::trace_region(
      "objective",
      [&](std::span<const Value> v) {
        const Value value = fn(params.unflatten(v));
        if (!value.defined() || value.rank() != 0 || !is_float(value.dtype()))
          throw UserError("minimize", "the function must give a float scalar",
                          value.defined() ? value.type().str() : "nothing",
                          "mean() or sum() of it; for the sum of its squares least_squares()");
        return std::vector<Value>{value};
      },
      ir::types_of(leaves));
  const auto results = differentiable_minimum("minimize", flat, objective, params, [&](std::span<const Value> v) {
    const auto rest = v.subspan(leaves.size());
    const auto value = [&](const Tree<Value>& at) {
      std::vector<Value> arguments = at.flatten();
      arguments.insert(arguments.end(), rest.begin(), rest.end());
      return inline_graph(*objective.graph, arguments)[0];
    };
    return Minimization(value, flat, method.rule(), options).run(params.unflatten(v.first(leaves.size())));
  });
  return {flat.unpack(results[0]), results[1], results[2], results[3], results[4], results[5]};
}

}  // namespace hotloop
