// Butcher tableaus of explicit Runge-Kutta methods: coefficients that check themselves.
#pragma once

#include <string>
#include <vector>

#include "hotloop/ode.h"

namespace hotloop::ode {

// k_i = f(t + c_i h, y + h sum_j a_ij k_j);  y1 = y + h sum_i b_i k_i;  error = h sum_i error_i k_i.
struct Tableau {
  std::string name;
  int order = 0;
  std::vector<double> c;               // one a stage, c_0 = 0
  std::vector<std::vector<double>> a;  // a[i] has i entries
  std::vector<double> b;
  std::vector<double> error = {};  // b - b_hat; empty: no estimate
  // y(t + x h) = y + h sum_j x^(j+1) sum_i dense[j][i] k_i. Empty: the straight line from y to y1.
  std::vector<std::vector<double>> dense = {};
  int embedded_order = 0;  // of b_hat
  int dense_order = 1;     // of the interpolant, uniformly in x

  int num_stages() const { return static_cast<int>(b.size()); }
  // First same as last: the last stage is the field at (t1, y1), so it is the next step's first.
  bool fsal() const;
  // InternalError unless rows sum to c, b and b_hat satisfy every order condition (one for each rooted tree, Butcher 1963), and the
  // interpolant its own, and meets y and y1 at its ends. `tolerance`: coefficients are printed with so many digits.
  void check(double tolerance) const;
};

// What the stages of a method weigh: in y1, in the embedded method (empty: there is none), and in each degree of the interpolant (empty: there is none).
struct StageWeights {
  std::vector<double> b, b_hat;
  std::vector<std::vector<double>> dense;
  int order = 0, embedded_order = 0, dense_order = 0;
};
// InternalError unless the weights satisfy every order condition, one for each rooted tree, and the interpolant ends at y1. `a`: the matrix of the stages,
// of any form. `single`: what stands in its place below a vertex with one child: a again for Runge-Kutta methods (Butcher 1963), with gamma added for
// Rosenbrock's (Hairer and Wanner 1996, IV.7).
void check_weights(const std::string& name, const std::vector<std::vector<double>>& a,
                   const std::vector<std::vector<double>>& single, const StageWeights& weights, double tolerance);

// The cubic Hermite interpolant of y, y1 and the first and last stage, as rows of `dense`.
std::vector<std::vector<double>> hermite(const std::vector<double>& b);
// The quartic with the slopes of the first and last stage and the middle y + h sum_i middle_i k_i.
std::vector<std::vector<double>> quartic(const std::vector<double>& b, const std::vector<double>& middle);

// The solver of a tableau, which is checked here.
Solver explicit_runge_kutta(Tableau tableau, double tolerance = 1e-13);

// y + sum_i h weights[i] ks[i] for each leaf, without terms whose weight is zero.
Leaves combine(const Leaves& y, Value h, const std::vector<double>& weights, const std::vector<Leaves>& ks);
// sum_i h weights[i] ks[i].
Leaves combine(Value h, const std::vector<double>& weights, const std::vector<Leaves>& ks);

}  // namespace hotloop::ode
