#include "hotloop/ops.h"
#include "ode/implicit.h"
#include "ode/registry.h"

namespace hotloop::ode {
namespace {

// y1 = y + h f(t + h, y1). The error estimate is the difference to the trapezoidal rule.
class ImplicitEulerRule : public StepRule {
 public:
  std::string name() const override { return "implicit_euler"; }
  int order() const override { return 1; }
  int error_order() const override { return 2; }
  bool is_implicit() const override { return true; }
  Leaves start(const VectorField& field, Value t0, const Leaves& y0) const override { return field(t0, y0); }

  StepResult step(const VectorField& field, const StepInput& in) const override {
    const FlatField f(field, in.y0);
    const Value y0 = f.pack(in.y0), h = cast(in.t1 - in.t0, y0.dtype());
    const Value k0 = in.made_jump.defined() ? f(in.t0, y0) : f.pack(in.state);
    const Value matrix =
        identity(f.size(), y0.dtype()) - h * stop_gradient(f.jacobian(stop_gradient(in.t0), stop_gradient(y0)));
    const NewtonSolution solution = newton(f, in.t1, h, y0, h * k0, matrix, factorize(matrix), newton_tolerance(f, in));
    const Value k1 = solution.increment / h;
    StepResult result;
    result.y1 = f.unpack(solution.z);
    result.error = f.unpack(0.5 * h * (k1 - k0));
    result.interpolant = {f.unpack(solution.z - y0)};
    result.state = f.unpack(k1);
    result.failed = logical_not(solution.converged);
    result.num_evaluations = solution.iterations + 1;
    return result;
  }
};

}  // namespace

ImplicitEuler::ImplicitEuler() : Solver(ImplicitEulerRule()) {}

std::vector<SolverDef> solvers_implicit_euler() {
  return {{"implicit_euler", "implicit Euler, order 1, the most stable", {}, [](const Config&) -> Solver {
             return ImplicitEuler();
           }}};
}

}  // namespace hotloop::ode
