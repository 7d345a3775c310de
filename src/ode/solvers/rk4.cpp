#include "ode/registry.h"
#include "ode/tableau.h"

namespace hotloop::ode {

// Kutta 1901. No error estimate: for constant steps. The interpolant is its natural one, of order 3.
RK4::RK4()
    : Solver(explicit_runge_kutta({
          .name = "rk4",
          .order = 4,
          .c = {0, 0.5, 0.5, 1},
          .a = {{}, {0.5}, {0, 0.5}, {0, 0, 1}},
          .b = {1.0 / 6, 1.0 / 3, 1.0 / 3, 1.0 / 6},
          .dense = {{1, 0, 0, 0}, {-1.5, 1, 1, -0.5}, {2.0 / 3, -2.0 / 3, -2.0 / 3, 2.0 / 3}},
          .dense_order = 3,
      })) {}

std::vector<SolverDef> solvers_rk4() {
  return {{"rk4", "the classical method of Kutta, order 4", {}, [](const Config&) -> Solver { return RK4(); }}};
}

}  // namespace hotloop::ode
