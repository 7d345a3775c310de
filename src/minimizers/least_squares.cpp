#include <algorithm>

#include "core/resolution.h"
#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/linalg.h"
#include "hotloop/minimize.h"
#include "hotloop/ops.h"
#include "minimizers/evaluations.h"
#include "minimizers/flat.h"
#include "minimizers/implicit.h"
#include "minimizers/line_search.h"
#include "minimizers/vectors.h"

namespace hotloop {
namespace {

using namespace minimizers;

// What the loop carries. An iteration of it is an evaluation of the residuals at x + h; the Jacobian is found where that is the next x.
struct Progress {
  Value x, a, g;  // where the method is; J^T J and J^T r there
  Value value;    // half the sum of squares, f64
  State state;
  Value is_first;
  Value iterations, status;

  template <class F> void visit(F&& f) {
    f(x), f(a), f(g), f(value);
    for (Value& v : state) f(v);
    f(is_first), f(iterations), f(status);
  }
};

// The residuals at x, (m,), of the parameters' widest dtype.
using Vector = std::function<Value(Value x)>;

class Fit {
 public:
  Fit(const Vector& residuals, const Flat& flat, const LeastSquaresRule& method, const LeastSquaresOptions& options)
      : residuals_(residuals), flat_(flat), method_(method), options_(options) {
    require_not_negative("least_squares", {{"max_iterations", static_cast<double>(options.max_iterations)},
                                           {"max_evaluations", static_cast<double>(options.max_evaluations)},
                                           {"gradient_tolerance", options.gradient_tolerance},
                                           {"value_tolerance", options.value_tolerance},
                                           {"step_tolerance", options.step_tolerance}});
  }

  // x, the value, the gradient's norm, iterations, evaluations and status.
  std::vector<Value> run(const Tree<Value>& params) const {
    Progress start;
    start.x = flat_.pack(params);
    start.g = zeros_like(start.x);
    start.a = constant(0, flat_.dtype(), {flat_.size(), flat_.size()});
    start.value = constant(0, DType::F64);
    start.state = method_.start(start.a);
    start.is_first = constant(1, DType::Bool);
    start.iterations = constant(0, DType::I32);
    start.status = code(running);
    const auto [end, count] = evaluate_until_ended("least_squares", start, most_evaluations(options_),
                                                   [&](const Progress& now) { return evaluated(now); });
    return {end.x, cast(end.value, flat_.dtype()), largest(end.g), end.iterations, count, end.status};
  }

 private:
  // J^T J and J^T r.
  std::vector<Value> normal_equations(Value x, Value r) const {
    const auto of_x = [&](std::span<const Value> in) { return std::vector<Value>{residuals_(in[0])}; };
    const Value j = jacobian(of_x)(std::vector<Value>{x}).dense(), transposed = transpose(j, {1, 0});
    return {matmul(transposed, j), matmul(transposed, r)};
  }

  Progress evaluated(const Progress& now) const {
    ProposedStep step = method_.propose(now.state, now.a, now.g);
    step.h = select(now.is_first, zeros_like(step.h), step.h);
    const Value x = now.x + step.h, r = residuals_(x);
    const Value wide = cast(r, DType::F64), value = 0.5 * inner(wide, wide);
    const Value gain = (now.value - value) / step.promised;
    const Value accept = bit_and(is_finite(value), bit_or(now.is_first, greater(gain, constant(0, DType::F64))));

    Progress next = now;
    const std::vector<Value> places = {now.a, now.g};
    const std::vector<Value> equations = cond(
        accept, [&](std::span<const Value>) { return normal_equations(x, r); },
        [](std::span<const Value> v) { return std::vector<Value>(v.begin(), v.end()); }, places);
    next.a = equations[0];
    next.g = equations[1];
    next.x = select(accept, x, now.x);
    next.value = select(bit_or(accept, now.is_first), value, now.value);
    const State first = method_.start(next.a), judged = method_.judge(now.state, next.a, gain, accept);
    for (std::size_t i = 0; i < next.state.size(); ++i) next.state[i] = select(now.is_first, first[i], judged[i]);
    next.is_first = constant(0, DType::Bool);
    next.iterations = now.iterations + cast(bit_and(accept, logical_not(now.is_first)), DType::I32);
    next.status = status_after(now, next, step, gain, accept);
    return next;
  }

  Value status_after(const Progress& now, const Progress& next, const ProposedStep& step, Value gain,
                     Value accept) const {
    const double least = resolution(flat_.dtype());
    const Value norm = largest(next.g);
    const Value flat = bit_and(accept, less_equal(norm, like(norm, options_.gradient_tolerance)));
    const Value enough = std::max(options_.value_tolerance, least) * now.value;
    // By the step as it would be without damping: what damping alone makes small has not arrived. Parameters count by what they change of the
    // residuals, whatever their units.
    const Value whole_promised = maximum(step.promised, 0.5 * abs(inner(step.whole, now.g)));
    const Value unchanged =
        bit_and(bit_and(less_equal(abs(gain * step.promised), enough), less_equal(whole_promised, enough)),
                less_equal(gain, constant(2, DType::F64)));
    const double part = std::max(options_.step_tolerance, least);
    const auto length = [](Value v) { return sqrt(inner(v, v)); };
    const Value sizes = sqrt(linalg::diagonal(now.a));
    const Value is_short = bit_or(less_equal(length(sizes * step.whole), part * length(sizes * now.x)),
                                  less_equal(length(step.whole), constant(part * part, DType::F64)));
    // Damping grows until a step is taken; one that changes no digit never is.
    const Value is_stuck =
        bit_and(logical_not(accept), equal(largest(now.x + step.h - now.x), constant(0, flat_.dtype())));
    const Value most = constant(static_cast<double>(options_.max_iterations), DType::I32);

    const Value later = logical_not(now.is_first);
    const Value ends = bit_or(method_.is_exhausted(next.state), bit_and(later, is_stuck));
    Value status = select(ends, code(Status::Stalled), code(running));
    status = select(greater_equal(next.iterations, most), code(Status::MaxIterations), status);
    if (options_.step_tolerance > 0) status = select(bit_and(later, is_short), code(Status::Step), status);
    if (options_.value_tolerance > 0) status = select(bit_and(later, unchanged), code(Status::Value), status);
    status = select(flat, code(Status::Gradient), status);
    const Value finite = bit_and(accept, is_finite(norm));
    return select(bit_and(now.is_first, logical_not(finite)), code(Status::NonFinite), status);
  }

  const Vector residuals_;
  const Flat& flat_;
  const LeastSquaresRule& method_;
  const LeastSquaresOptions& options_;
};

}  // namespace

Minimum least_squares(const Residuals& residuals, const Tree<Value>& params, const LeastSquares& method,
                      const LeastSquaresOptions& options) {
  const Flat flat("least_squares", params);
  const std::vector<Value> leaves = params.flatten();
  const ir::Region of_leaves = ir::trace_region(
      "residuals",
      [&](std::span<const Value> v) {
        const Tree<Value> r = residuals(params.unflatten(v));
        std::vector<Value> parts;
        r.for_each([&](const std::string& name, const Value& leaf) {
          if (!is_float(leaf.dtype()))
            throw UserError("least_squares", "residuals must be floats",
                            (name.empty() ? "" : name + ": ") + leaf.type().str(), "cast() them to f32");
          const Value vector = reshape(leaf, {leaf.shape().size()});
          parts.push_back(leaf.dtype() == flat.dtype() ? vector : cast(vector, flat.dtype()));
        });
        if (parts.empty()) throw UserError("least_squares", "there must be a residual", "none");
        return std::vector<Value>{parts.size() == 1 ? parts[0] : concat(parts, 0)};
      },
      ir::types_of(leaves));
  const auto at = [&](const Tree<Value>& where, std::span<const Value> rest) {
    std::vector<Value> arguments = where.flatten();
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return inline_graph(*of_leaves.graph, arguments)[0];
  };
  ir::Region half_sum;
  half_sum.captures = of_leaves.captures;
  half_sum.graph = trace(
      [&](std::span<const Value> v) {
        return std::vector<Value>{0.5 * sum(square(inline_graph(*of_leaves.graph, v)[0]))};
      },
      of_leaves.graph->input_types(), "half_sum_of_squares");
  const auto results = differentiable_minimum("least_squares", flat, half_sum, params, [&](std::span<const Value> v) {
    const auto rest = v.subspan(leaves.size());
    const Vector vector = [&](Value x) { return at(flat.unpack(x), rest); };
    return Fit(vector, flat, method.rule(), options).run(params.unflatten(v.first(leaves.size())));
  });
  return {flat.unpack(results[0]), results[1], results[2], results[3], results[4], results[5]};
}

}  // namespace hotloop
