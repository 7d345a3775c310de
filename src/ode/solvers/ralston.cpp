#include "ode/registry.h"
#include "ode/tableau.h"

namespace hotloop::ode {

// Ralston 1962: of the two-stage methods of order 2, the one with the least bound on the truncation error.
Ralston::Ralston()
    : Solver(explicit_runge_kutta({
          .name = "ralston",
          .order = 2,
          .c = {0, 2.0 / 3},
          .a = {{}, {2.0 / 3}},
          .b = {0.25, 0.75},
          .error = {-0.75, 0.75},
          .dense = {{1, 0}, {-0.75, 0.75}},
          .embedded_order = 1,
          .dense_order = 2,
      })) {}

std::vector<SolverDef> solvers_ralston() {
  return {{"ralston", "Ralston's method, order 2(1)", {}, [](const Config&) -> Solver { return Ralston(); }}};
}

}  // namespace hotloop::ode
