// Singly diagonally implicit Runge-Kutta methods with an explicit first stage.
#pragma once

#include <string>
#include <vector>

#include "hotloop/ode.h"

namespace hotloop::ode {

// Stage i solves z = y + h sum_{j<i} a_ij k_j + h gamma f(t + c_i h, z). The last stage is y1 (stiffly accurate), so that its k
// is the next step's first. predictor[i] weighs the k_j whose sum Newton's method takes for k_i at first.
struct Esdirk {
  std::string name;
  int order = 0;
  double gamma = 0;
  std::vector<double> c;
  std::vector<std::vector<double>> a, predictor;  // row i has i entries
  std::vector<double> error;                      // b - b_hat, whose order is one less

  // InternalError unless rows sum to c, and b, b_hat and the cubic Hermite interpolant satisfy their order conditions.
  void check(double tolerance) const;
};
Solver esdirk(Esdirk tableau, double tolerance);

}  // namespace hotloop::ode
