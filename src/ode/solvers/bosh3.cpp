#include "ode/registry.h"
#include "ode/tableau.h"

namespace hotloop::ode {

// Bogacki and Shampine 1989, first same as last.
Bosh3::Bosh3()
    : Solver(explicit_runge_kutta({
          .name = "bosh3",
          .order = 3,
          .c = {0, 0.5, 0.75, 1},
          .a = {{}, {0.5}, {0, 0.75}, {2.0 / 9, 1.0 / 3, 4.0 / 9}},
          .b = {2.0 / 9, 1.0 / 3, 4.0 / 9, 0},
          .error = {2.0 / 9 - 7.0 / 24, 1.0 / 3 - 1.0 / 4, 4.0 / 9 - 1.0 / 3, -1.0 / 8},
          .dense = hermite({2.0 / 9, 1.0 / 3, 4.0 / 9, 0}),
          .embedded_order = 2,
          .dense_order = 3,
      })) {}

std::vector<SolverDef> solvers_bosh3() {
  return {{"bosh3", "Bogacki and Shampine, order 3(2)", {}, [](const Config&) -> Solver { return Bosh3(); }}};
}

}  // namespace hotloop::ode
