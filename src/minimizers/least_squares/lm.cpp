#include <limits>

#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/linalg.h"
#include "hotloop/ops.h"
#include "minimizers/line_search.h"
#include "minimizers/registry.h"
#include "minimizers/vectors.h"

namespace hotloop::minimizers {
namespace {

Value on_diagonal(Value v) {
  const std::int64_t n = v.shape()[0];
  const Value is_diagonal = equal(iota(DType::I32, {n, n}, 0), iota(DType::I32, {n, n}, 1));
  return select(is_diagonal, broadcast_to(v, {n, n}), constant(0, v.dtype(), {n, n}));
}

// Madsen, Nielsen, Tingleff, Methods for non-linear least squares problems, 2004, algorithm 3.16. State: the damping and by what it grows
// after the next failure, f64; scaled, also D, (n,).
class LMRule : public LeastSquaresRule {
 public:
  LMRule(double initial_damping, bool scaled) : initial_damping_(initial_damping), scaled_(scaled) {
    if (!(initial_damping > 0))
      throw UserError("lm", "initial_damping must be positive", print_number(initial_damping));
  }

  State start(Value a) const override {
    const Value growth = constant(2, DType::F64), damping = constant(initial_damping_, DType::F64);
    const Value diagonal = linalg::diagonal(a);
    if (scaled_) return {damping, growth, diagonal};
    return {damping * cast(largest(diagonal), DType::F64), growth};
  }

  ProposedStep propose(const State& state, Value a, Value g) const override {
    const Value damping = cast(state[0], a.dtype());
    const Value added = scaled_ ? where_seen(state[2], damping * state[2]) : broadcast_to(damping, g.shape());
    const Value h = -linalg::cholesky_solve(linalg::cholesky(a + on_diagonal(added)), g);
    const Value diagonal = linalg::diagonal(a);
    const Value whole = select(equal(h, zeros_like(h)), h, h * where_seen(diagonal, 1.0 + added / diagonal));
    return {h, 0.5 * inner(h, added * h - g), whole};
  }

  State judge(const State& state, Value a, Value gain, Value accepted) const override {
    const Value r = 2.0 * gain - 1.0, third = constant(1.0 / 3, DType::F64);
    State next = {state[0] * select(accepted, maximum(third, 1.0 - r * r * r), state[1]),
                  select(accepted, constant(2, DType::F64), 2.0 * state[1])};
    if (scaled_) next.push_back(maximum(state[2], linalg::diagonal(a)));
    return next;
  }

  Value is_exhausted(const State& state) const override { return logical_not(is_finite(state[0])); }

 private:
  // `value` of parameters that something depends on. Others have no slope, and stay where they are with any number. All but 0 counts: J^T J
  // holds squares, among which a column that is small by its unit is far below the digits of the largest.
  static Value where_seen(Value squares, Value value) {
    return select(greater(squares, zeros_like(squares)), value, ones_like(value));
  }

  double initial_damping_;
  bool scaled_;
};

}  // namespace

LevenbergMarquardt::LevenbergMarquardt(double initial_damping, bool scaled)
    : LeastSquares(LMRule(initial_damping, scaled)) {}

std::vector<LeastSquaresDef> least_squares_lm() {
  return {{"lm",
           "Levenberg-Marquardt with the damping by how well a step kept its promise (Nielsen 1999)",
           {{"initial_damping", 1e-3, "of the first step, as a part of the largest element on J^T J's diagonal"},
            {"scaled", false, "damps each parameter by the size of its column of J, whatever its unit"}},
           [](const Config& config) -> LeastSquares {
             return LevenbergMarquardt(config.number("initial_damping"), config.flag("scaled"));
           }}};
}

}  // namespace hotloop::minimizers
