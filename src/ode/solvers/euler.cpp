#include "ode/registry.h"
#include "ode/tableau.h"

namespace hotloop::ode {

// y1 = y + h f(t, y).
Euler::Euler()
    : Solver(explicit_runge_kutta({
          .name = "euler",
          .order = 1,
          .c = {0},
          .a = {{}},
          .b = {1},
      })) {}

std::vector<SolverDef> solvers_euler() {
  return {{"euler", "Euler's method, order 1", {}, [](const Config&) -> Solver { return Euler(); }}};
}

}  // namespace hotloop::ode
