#include <cmath>

#include "hotloop/ops.h"
#include "ode/implicit.h"
#include "ode/registry.h"
#include "ode/rosenbrock.h"

namespace hotloop::ode {
namespace {

// Shampine and Reichelt 1997, "The MATLAB ODE suite": one Jacobian and three linear solves a step, the field at the end is the next
// step's first.
const double d = 1 / (2 + std::sqrt(2.0)), e32 = 6 + std::sqrt(2.0), w = 1 / (1 - 2 * d);

// What is solved below, with f1 and f2 at the second and third stage, as a method of the general form.
void check() {
  const Rosenbrock method{.name = "rosenbrock23",
                          .a = {{0, 0, 0}, {0.5, 0, 0}, {0, 1, 0}},
                          .gamma = {{d, 0, 0}, {-d, d, 0}, {(e32 - 2) * d, -e32 * d, d}},
                          .b = {0, 1, 0},
                          .b_hat = {1.0 / 6, 2.0 / 3, 1.0 / 6},
                          .dense = {{w, -2 * d * w, 0}, {-w, w, 0}},
                          .order = 2,
                          .embedded_order = 3,
                          .dense_order = 2};
  method.check({0, 0.5, 1}, {d, 0, -2 * d + d}, 1e-13);
}

class Rosenbrock23Rule : public StepRule {
 public:
  std::string name() const override { return "rosenbrock23"; }
  int order() const override { return 2; }
  int error_order() const override { return 3; }
  bool is_implicit() const override { return true; }

  Leaves start(const VectorField& field, Value t0, const Leaves& y0) const override { return field(t0, y0); }

  StepResult step(const VectorField& field, const StepInput& in) const override {
    const FlatField f(field, in.y0);
    const Value y0 = f.pack(in.y0), h = cast(in.t1 - in.t0, y0.dtype());
    const Value f0 = in.made_jump.defined() ? f(in.t0, y0) : f.pack(in.state);
    const Value matrix = identity(f.size(), y0.dtype()) - d * h * f.jacobian(in.t0, y0);
    const Factors factors = factorize(matrix);
    const auto solve = [&](Value b) { return solve_with(matrix, factors, b); };
    const Value in_time = d * h * f.time_derivative(in.t0, y0);
    const Value k1 = solve(f0 + in_time);
    const Value f1 = f(in.t0 + 0.5 * (in.t1 - in.t0), y0 + 0.5 * h * k1);
    const Value k2 = solve(f1 - k1) + k1;
    const Value y1 = y0 + h * k2;
    const Value f2 = f(in.t1, y1);
    const Value k3 = solve(f2 - e32 * (k2 - f1) - 2 * (k1 - f0) + in_time);
    StepResult result;
    result.y1 = f.unpack(y1);
    result.error = f.unpack(h / 6.0 * (k1 - 2 * k2 + k3));
    result.interpolant = {f.unpack(w * h * (k1 - 2 * d * k2)), f.unpack(w * h * (k2 - k1))};
    result.state = f.unpack(f2);
    return result;
  }
};

}  // namespace

Rosenbrock23::Rosenbrock23() : Solver(Rosenbrock23Rule()) { check(); }

std::vector<SolverDef> solvers_rosenbrock23() {
  return {{"rosenbrock23",
           "Rosenbrock, order 2(3), for stiff problems at loose tolerances",
           {},
           [](const Config&) -> Solver { return Rosenbrock23(); }}};
}

}  // namespace hotloop::ode
