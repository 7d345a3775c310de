#include "ode/registry.h"
#include "ode/tableau.h"

namespace hotloop::ode {

// The explicit midpoint method with Euler's method embedded.
Midpoint::Midpoint()
    : Solver(explicit_runge_kutta({
          .name = "midpoint",
          .order = 2,
          .c = {0, 0.5},
          .a = {{}, {0.5}},
          .b = {0, 1},
          .error = {-1, 1},
          .dense = {{1, 0}, {-1, 1}},
          .embedded_order = 1,
          .dense_order = 2,
      })) {}

std::vector<SolverDef> solvers_midpoint() {
  return {
      {"midpoint", "the explicit midpoint method, order 2(1)", {}, [](const Config&) -> Solver { return Midpoint(); }}};
}

}  // namespace hotloop::ode
