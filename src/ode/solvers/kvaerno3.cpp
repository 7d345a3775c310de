#include "ode/esdirk.h"
#include "ode/registry.h"

namespace hotloop::ode {
namespace {

// Kvaerno 2004, in terms of gamma as there.
Esdirk tableau() {
  const double g = 0.43586652150845906;  // a root of g^3 - 3 g^2 + 3 g / 2 - 1/6
  const double a31 = (-4 * g * g + 6 * g - 1) / (4 * g), a32 = (-2 * g + 1) / (4 * g);
  const double a41 = (6 * g - 1) / (12 * g), a42 = -1 / ((24 * g - 12) * g),
               a43 = (-6 * g * g + 6 * g - 1) / (6 * g - 3);
  const double theta = 1 / (2 * g);
  return {.name = "kvaerno3",
          .order = 3,
          .gamma = g,
          .c = {0, 2 * g, 1, 1},
          .a = {{}, {g}, {a31, a32}, {a41, a42, a43}},
          .predictor = {{}, {1}, {1 - theta, theta}, {a31, a32, g}},
          .error = {a41 - a31, a42 - a32, a43 - g, g}};
}

}  // namespace

Kvaerno3::Kvaerno3() : Solver(esdirk(tableau(), 1e-12)) {}

std::vector<SolverDef> solvers_kvaerno3() {
  return {
      {"kvaerno3", "ESDIRK, order 3(2), for stiff problems", {}, [](const Config&) -> Solver { return Kvaerno3(); }}};
}

}  // namespace hotloop::ode
