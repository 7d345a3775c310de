#include "ode/registry.h"
#include "ode/tableau.h"

namespace hotloop::ode {
namespace {

std::vector<double> weights() { return {35.0 / 384, 0, 500.0 / 1113, 125.0 / 192, -2187.0 / 6784, 11.0 / 84, 0}; }
std::vector<double> middle() {
  return {6025192743.0 / 30085553152 / 2,     0,
          51252292925.0 / 65400821598 / 2,    -2691868925.0 / 45128329728 / 2,
          187940372067.0 / 1594534317056 / 2, -1776094331.0 / 19743644256 / 2,
          11237099.0 / 235043384 / 2};
}

}  // namespace

// Dormand and Prince 1980, first same as last; the middle of the interpolant is Shampine's (1986).
Dopri5::Dopri5()
    : Solver(explicit_runge_kutta({
          .name = "dopri5",
          .order = 5,
          .c = {0, 0.2, 0.3, 0.8, 8.0 / 9, 1, 1},
          .a = {{},
                {1.0 / 5},
                {3.0 / 40, 9.0 / 40},
                {44.0 / 45, -56.0 / 15, 32.0 / 9},
                {19372.0 / 6561, -25360.0 / 2187, 64448.0 / 6561, -212.0 / 729},
                {9017.0 / 3168, -355.0 / 33, 46732.0 / 5247, 49.0 / 176, -5103.0 / 18656},
                {35.0 / 384, 0, 500.0 / 1113, 125.0 / 192, -2187.0 / 6784, 11.0 / 84}},
          .b = weights(),
          // b_hat is Shampine's (1986).
          .error = {35.0 / 384 - 1951.0 / 21600, 0, 500.0 / 1113 - 22642.0 / 50085, 125.0 / 192 - 451.0 / 720,
                    12231.0 / 42400 - 2187.0 / 6784, 11.0 / 84 - 649.0 / 6300, -1.0 / 60},
          .dense = quartic(weights(), middle()),
          .embedded_order = 4,
          .dense_order = 4,
      })) {}

std::vector<SolverDef> solvers_dopri5() {
  return {{"dopri5", "Dormand and Prince, order 5(4)", {}, [](const Config&) -> Solver { return Dopri5(); }}};
}

}  // namespace hotloop::ode
