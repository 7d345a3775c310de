#include "ode/registry.h"
#include "ode/tableau.h"

namespace hotloop::ode {

// The explicit trapezoidal rule with Euler's method embedded.
Heun::Heun()
    : Solver(explicit_runge_kutta({
          .name = "heun",
          .order = 2,
          .c = {0, 1},
          .a = {{}, {1}},
          .b = {0.5, 0.5},
          .error = {-0.5, 0.5},
          .dense = {{1, 0}, {-0.5, 0.5}},
          .embedded_order = 1,
          .dense_order = 2,
      })) {}

std::vector<SolverDef> solvers_heun() {
  return {{"heun", "Heun's method (explicit trapezoidal rule), order 2(1)", {}, [](const Config&) -> Solver {
             return Heun();
           }}};
}

}  // namespace hotloop::ode
