#include "ode/rosenbrock.h"

#include <cmath>

#include "hotloop/error.h"
#include "ode/tableau.h"

namespace hotloop::ode {
namespace {

using Row = std::vector<double>;

Row times(const Row& x, const std::vector<Row>& matrix) {
  Row out(matrix.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < out.size(); ++j) out[j] += x[i] * matrix[i][j];
  return out;
}

}  // namespace

Rosenbrock Rosenbrock::from_transformed(Rosenbrock method, const std::vector<Row>& c, double diagonal) {
  // gamma is the inverse of I / diagonal - c, a lower triangle: row by row.
  const std::size_t n = c.size();
  method.gamma.assign(n, Row(n));
  for (std::size_t i = 0; i < n; ++i) {
    method.gamma[i][i] = diagonal;
    for (std::size_t j = 0; j < i; ++j)
      for (std::size_t k = 0; k < n; ++k) method.gamma[i][k] += diagonal * c[i][j] * method.gamma[j][k];
  }
  for (Row& row : method.a) row = times(row, method.gamma);
  for (Row& row : method.dense) row = times(row, method.gamma);
  method.b = times(method.b, method.gamma);
  method.b_hat = times(method.b_hat, method.gamma);
  return method;
}

void Rosenbrock::check(const Row& alpha, const Row& gamma_sum, double tolerance) const {
  const std::size_t n = b.size();
  std::vector<Row> single = a;
  for (std::size_t i = 0; i < n; ++i) {
    double in_a = 0, in_gamma = 0;
    for (std::size_t j = 0; j < n; ++j) {
      in_a += a[i][j];
      in_gamma += gamma[i][j];
      single[i][j] += gamma[i][j];
    }
    HOTLOOP_CHECK(std::abs(in_a - alpha[i]) <= tolerance && std::abs(in_gamma - gamma_sum[i]) <= tolerance,
                  name + ": row " + std::to_string(i) + " sums to its alpha and gamma");
  }
  check_weights(name, a, single, {b, b_hat, dense, order, embedded_order, dense_order}, tolerance);
}

}  // namespace hotloop::ode
