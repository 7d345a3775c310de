#include "ode/continuous_adjoint.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/region.h"
#include "ops/composed/linear_call.h"

namespace hotloop::ode {
namespace {

void check(const Problem& problem) {
  const Options& options = problem.options;
  const auto require = [](bool condition, const std::string& what, const std::string& received) {
    if (!condition) throw UserError("ode.solve", what, received, "Discrete()");
  };
  require(problem.t0.is_number() && problem.t1.is_number(), "an adjoint equation needs t0 and t1 as numbers",
          "times that the program computes");
  require(options.events.empty(), "an adjoint equation cannot pass events",
          std::to_string(options.events.size()) + (options.events.size() == 1 ? " event" : " events"));
  require(!options.saveat.steps && !options.saveat.dense && !options.saveat.ts_value.defined(),
          "an adjoint equation needs output at known times or at the end", "another SaveAt");
  const StepRule& solver = problem.solver.rule();
  require(solver.error_order() > 0,
          "an adjoint equation is solved to tolerances of its own, by a solver with an error estimate",
          solver.name() + ", which has none");
}

// Along a cubic a solver of order 5 or more loses what it is taken for: to a tolerance of 1e-10 the gradient of a logistic curve was wrong by 1e-5 with
// vern7, and by 1e-6 with kvaerno5.
void check_interpolant(const StepRule& solver, std::size_t num_coefficients) {
  const int degree = static_cast<int>(num_coefficients) - 1, least = std::min(solver.order() - 1, 4);
  if (degree >= least) return;
  throw UserError(
      "ode.solve",
      "an adjoint along the solver's interpolant needs one of degree " + std::to_string(least) + " at least",
      solver.name() + ", of order " + std::to_string(solver.order()) + ", whose interpolant has degree " +
          std::to_string(degree),
      std::string("Discrete(); or ") +
          (solver.is_implicit() ? "the solver Rodas5P()" : "one of the solvers Tsit5() and Dopri8()"));
}

// The field as a closed graph of (t, y..., args..., captured values...).
struct FieldGraph {
  ir::Region region;
  Leaves fixed;  // args..., captured values...
  std::size_t num_state = 0;

  FieldGraph(const Problem& problem, DType time_dtype) {
    std::vector<ValueType> types = {{time_dtype, {}}};
    const Leaves state = problem.y0.flatten(), args = problem.options.args.flatten();
    num_state = state.size();
    for (const Leaves& leaves : {state, args})
      for (const Value& v : leaves) types.push_back(v.type());
    region = ir::trace_region(
        "field",
        [&](std::span<const Value> v) {
          const auto at = [&](std::size_t from, std::size_t count) {
            return Leaves(v.begin() + static_cast<std::ptrdiff_t>(from),
                          v.begin() + static_cast<std::ptrdiff_t>(from + count));
          };
          // Through VectorField, which checks what comes back.
          const VectorField field(problem.field, problem.options.args.unflatten(at(1 + num_state, args.size())),
                                  problem.y0.unflatten(at(1, num_state)), 1);
          return field(v[0], at(1, num_state));
        },
        types);
    fixed = args;
    fixed.insert(fixed.end(), region.captures.begin(), region.captures.end());
  }

  Leaves operator()(Value t, const Leaves& y, std::span<const Value> args) const {
    std::vector<Value> inputs = {t};
    inputs.insert(inputs.end(), y.begin(), y.end());
    inputs.insert(inputs.end(), args.begin(), args.end());
    return inline_graph(*region.graph, inputs);
  }
};

// Rows (n, ...) in one leaf: `first`, then the rows of `rest`, then `last`; undefined ones are left out.
Value rows_of(Value first, Value rest, Value last) {
  std::vector<Value> parts;
  if (first.defined()) parts.push_back(expand_dims(first, 0));
  if (rest.defined()) parts.push_back(rest);
  if (last.defined()) parts.push_back(expand_dims(last, 0));
  return parts.size() == 1 ? parts[0] : concat(parts, 0);
}

Array times_of(const std::vector<double>& times, DType dtype) {
  return Array::from(times, {static_cast<std::int64_t>(times.size())}).cast(dtype);
}

}  // namespace

Tree<Value> tree_of(const std::vector<std::pair<std::string, Leaves>>& parts) {
  Tree<Value> tree;
  for (const auto& [name, leaves] : parts) {
    Tree<Value> part;
    for (std::size_t i = 0; i < leaves.size(); ++i) part.set(std::to_string(i), leaves[i]);
    if (!leaves.empty()) tree.set(name, part);
  }
  return tree;
}

Solution AdjointEquation::solve(const Field& field, Value from, Value to, const Tree<Value>& x, std::size_t controlled,
                                const SaveAt& saveat) const {
  const Leaves leaves = x.flatten();
  std::int64_t size = 0, all = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    all += leaves[i].shape().size();
    if (i < controlled) size += leaves[i].shape().size();
  }
  // The norm is a mean over all: errors that are infinitely tolerated still count in its denominator.
  const double share = std::sqrt(static_cast<double>(size) / static_cast<double>(all));
  std::vector<Array> rtol, atol;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const bool counts = i < controlled;
    rtol.push_back(Array::full(DType::F64, {}, counts ? tolerance.rtol * share : 0));
    atol.push_back(
        Array::full(DType::F64, {}, counts ? tolerance.atol * share : std::numeric_limits<double>::infinity()));
  }
  Options options;
  options.controller = PID(x.unflatten(rtol), x.unflatten(atol));
  options.max_steps = tolerance.max_steps;
  options.saveat = saveat;
  Solution back = ode::solve(field, solver, from, to, x, options);
  back.y1 = x.unflatten(or_nan(back.result, back.y1.flatten()));
  return back;
}

Leaves or_nan(Value result, Leaves leaves) {
  const Value reached = equal(result, constant(static_cast<double>(Result::Success), DType::I32));
  for (Value& leaf : leaves)
    leaf = select(broadcast_to(reached, leaf.shape()), leaf,
                  constant(std::numeric_limits<double>::quiet_NaN(), leaf.dtype(), leaf.shape()));
  return leaves;
}

Solution AdjointOfEquation::solve(const Problem& problem, const TakeSteps& take_steps) const {
  check(problem);
  const Tree<Value>& like = problem.y0;
  const DType dtype = VectorField(problem.field, problem.options.args, like, 1).time_dtype();
  const FieldGraph graph(problem, dtype);
  const Leaves y0 = like.flatten();
  const std::size_t num_state = y0.size(), num_rows = problem.options.saveat.ts.size();
  const double direction = problem.t0.number() <= problem.t1.number() ? 1 : -1;

  // What is differentiated: (y0..., fixed...) -> y1..., rows at ts..., what a forward solution takes, counts: t1, the result, ...
  constexpr std::size_t num_counts = 6;
  std::size_t num_coefficients = 0;
  const auto forward = [&](std::span<const Value> in) {
    const std::span<const Value> fixed = in.subspan(num_state);
    Options options = problem.options;
    options.adjoint = Discrete();
    options.args = {};
    options.saveat.t0 = options.saveat.t1 = false;
    options.saveat.dense = keep_solution_;
    const Field field = [&](Value t, const Tree<Value>& y, const Tree<Value>&) {
      return like.unflatten(graph(t, y.flatten(), fixed));
    };
    const Tree<Value> start = like.unflatten(in.first(num_state));
    const Solution s = take_steps({field, problem.solver, problem.t0, problem.t1, start, options});
    std::vector<Value> out = s.y1.flatten();
    if (num_rows > 0)
      for (const Value& leaf : s.ys.flatten()) out.push_back(leaf);
    if (keep_solution_) {
      num_coefficients = s.dense->coefficients.size();
      check_interpolant(problem.solver.rule(), num_coefficients);
      for (const Value& v : {s.dense->ends, s.dense->starts, s.dense->lengths}) out.push_back(v);
      for (const Leaves& leaves : s.dense->coefficients) out.insert(out.end(), leaves.begin(), leaves.end());
    }
    for (const Value& v :
         {s.t1, s.result, s.stats.num_steps, s.stats.num_accepted, s.stats.num_rejected, s.stats.num_evaluations})
      out.push_back(v);
    return out;
  };

  const auto pullback = [&](std::span<const Value> primals, std::span<const Value> outputs,
                            std::span<const Value> cotangents) {
    const std::span<const Value> fixed = primals.subspan(num_state);
    std::vector<std::size_t> moving;  // of the fixed values: those with a derivative
    for (std::size_t i = 0; i < fixed.size(); ++i)
      if (is_float(fixed[i].dtype())) moving.push_back(i);

    AdjointEquation equation{{}, {}, problem.solver, tolerance_};
    equation.slopes = [&](Value t, const Leaves& y, const Leaves& a) {
      std::vector<Value> at = y;
      for (const std::size_t i : moving) at.push_back(fixed[i]);
      const auto [dy, back] = vjp(
          [&](std::span<const Value> v) {
            std::vector<Value> args(fixed.begin(), fixed.end());
            for (std::size_t k = 0; k < moving.size(); ++k) args[moving[k]] = v[num_state + k];
            return graph(t, Leaves(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(num_state)), args);
          },
          at);
      const std::vector<Value> given = back(a);
      AdjointEquation::Slopes slopes{dy, {}, {}};
      for (std::size_t i = 0; i < given.size(); ++i) (i < num_state ? slopes.a : slopes.args).push_back(-given[i]);
      return slopes;
    };
    Solution kept;
    if (keep_solution_) {
      auto next = outputs.begin() + static_cast<std::ptrdiff_t>(num_state * (num_rows > 0 ? 2 : 1));
      auto dense = std::make_shared<Solution::Dense>();
      dense->ends = *next++;
      dense->starts = *next++;
      dense->lengths = *next++;
      for (std::size_t j = 0; j < num_coefficients; ++j, next += static_cast<std::ptrdiff_t>(num_state))
        dense->coefficients.emplace_back(next, next + static_cast<std::ptrdiff_t>(num_state));
      dense->direction = direction;
      dense->like = like;
      kept.dense = dense;
      equation.state_at = [&](Value t) { return kept.evaluate(t).flatten(); };
    }

    // Interval j lies between the knots j and j + 1 of t0, ts..., t1. At its later end the state is known; at its earlier one the
    // cotangent of what was saved there comes in.
    std::vector<double> knots = {problem.t0.number()};
    knots.insert(knots.end(), problem.options.saveat.ts.begin(), problem.options.saveat.ts.end());
    knots.push_back(problem.t1.number());
    std::vector<Value> xs = {constant(times_of({knots.begin() + 1, knots.end()}, dtype)),
                             constant(times_of({knots.begin(), knots.end() - 1}, dtype))};
    for (std::size_t i = 0; i < num_state; ++i)
      xs.push_back(rows_of({}, num_rows > 0 ? outputs[num_state + i] : Value{}, outputs[i]));
    for (std::size_t i = 0; i < num_state; ++i)
      xs.push_back(rows_of(zeros_like(outputs[i]), num_rows > 0 ? cotangents[num_state + i] : Value{}, {}));
    std::vector<Value> init;
    for (std::size_t i = 0; i < num_state; ++i) init.push_back(cotangents[i]);
    for (const std::size_t i : moving) init.push_back(zeros_like(fixed[i]));
    const auto cut = [&](std::span<const Value> v, std::size_t from, std::size_t count) {
      return Leaves(v.begin() + static_cast<std::ptrdiff_t>(from),
                    v.begin() + static_cast<std::ptrdiff_t>(from + count));
    };
    const auto [carry, ys] = scan(
        [&](std::span<const Value> c, std::span<const Value> x) {
          const Cotangents before = carry_back_(equation, x[0], x[1], cut(x, 2, num_state),
                                                {cut(c, 0, num_state), cut(c, num_state, moving.size())});
          std::vector<Value> next;
          for (std::size_t i = 0; i < num_state; ++i) next.push_back(before.state[i] + x[2 + num_state + i]);
          next.insert(next.end(), before.args.begin(), before.args.end());
          return std::pair(next, std::vector<Value>{});
        },
        init, xs, {.reverse = true});
    // Where the forward solve did not arrive, nothing is known of the state at t1.
    const Leaves found = or_nan(outputs.last(num_counts)[1], carry);
    std::vector<Value> result(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(num_state));
    result.resize(primals.size());
    for (std::size_t k = 0; k < moving.size(); ++k) result[num_state + moving[k]] = found[num_state + k];
    return result;
  };

  std::vector<Value> primals = y0;
  primals.insert(primals.end(), graph.fixed.begin(), graph.fixed.end());
  const std::vector<Value> out = ir::custom_vjp("ode.solve", forward, pullback, primals);

  Solution s;
  s.y1 = like.unflatten(Leaves(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(num_state)));
  const SaveAt& saveat = problem.options.saveat;
  std::vector<double> times = saveat.ts;
  if (saveat.t0) times.insert(times.begin(), problem.t0.number());
  const std::span<const Value> counts = std::span(out).last(num_counts);
  s.t1 = stop_gradient(counts[0]);
  if (!times.empty() || saveat.t1) {
    s.ts = rows_of({}, times.empty() ? Value{} : constant(times_of(times, dtype)), saveat.t1 ? s.t1 : Value{});
    Leaves ys;
    for (std::size_t i = 0; i < num_state; ++i)
      ys.push_back(rows_of(saveat.t0 ? y0[i] : Value{}, num_rows > 0 ? out[num_state + i] : Value{},
                           saveat.t1 ? out[i] : Value{}));
    s.ys = like.unflatten(ys);
  }
  s.result = counts[1];
  s.stats = {.num_steps = counts[2],
             .num_accepted = counts[3],
             .num_rejected = counts[4],
             .num_evaluations = counts[5],
             .num_events = {}};
  return s;
}

std::vector<Parameter> tolerance_parameters() {
  const AdjointTolerance defaults;
  return {{"rtol", defaults.rtol, "relative tolerance of the backward solve"},
          {"atol", defaults.atol, "absolute tolerance of it"},
          {"max_steps", defaults.max_steps, "attempted steps of it at most, between two saved times"}};
}

AdjointTolerance tolerance_of(const Config& config) {
  return {config.number("rtol"), config.number("atol"), config.integer("max_steps")};
}

}  // namespace hotloop::ode
