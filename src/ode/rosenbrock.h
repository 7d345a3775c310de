// Coefficients of Rosenbrock methods that check themselves.
#pragma once

#include <string>
#include <vector>

namespace hotloop::ode {

// k_i = f(t + alpha_i h, y + h sum_j<i a_ij k_j) + h J sum_j<=i gamma_ij k_j + gamma_i h^2 df/dt;  y1 = y + h sum_i b_i k_i, where alpha_i and gamma_i are
// the sums of rows.
struct Rosenbrock {
  std::string name;
  std::vector<std::vector<double>> a = {}, gamma = {};  // square
  std::vector<double> b = {}, b_hat = {};
  std::vector<std::vector<double>> dense = {};  // as Tableau's
  int order = 0, embedded_order = 0, dense_order = 0;

  // The method whose stages are u = h gamma k, as they are where no product with J is wanted:
  //   (I / (gamma_ii h) - J) u_i = f(t + alpha_i h, y + sum_j a_ij u_j) + sum_j c_ij u_j / h + gamma_i h df/dt;  y1 = y + sum_i b_i u_i.
  // All given in those terms; `diagonal` is gamma_ii.
  static Rosenbrock from_transformed(Rosenbrock method, const std::vector<std::vector<double>>& c, double diagonal);

  // InternalError unless rows sum to alpha_i and gamma_i, as the solver has them, and all weights satisfy their order conditions.
  void check(const std::vector<double>& alpha, const std::vector<double>& gamma_sum, double tolerance) const;
};

}  // namespace hotloop::ode
