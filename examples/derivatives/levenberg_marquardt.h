// Levenberg-Marquardt (Marquardt 1963): least squares by steps (J^T J + mu diag) p = -J^T r, where r, J and J^T J come from one
// compiled call. A row of J is the gradient of one residual, so J is a per-sample gradient: one backward pass, not one a row.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "hotloop/hotloop.h"

namespace hotloop::examples {

// Eight partial sums, which a compiler keeps in vectors.
inline double inner_product(const double* a, const double* b, std::size_t n) {
  double part[8] = {};
  std::size_t k = 0;
  for (; k + 8 <= n; k += 8)
    for (std::size_t u = 0; u < 8; ++u) part[u] += a[k + u] * b[k + u];
  double sum = 0;
  for (const double p : part) sum += p;
  for (; k < n; ++k) sum += a[k] * b[k];
  return sum;
}

// Solves the symmetric positive definite system a x = b (n x n, row-major) in place by Cholesky; false if a is not positive.
inline bool solve_positive(std::vector<double>& a, std::vector<double>& b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    double* row = &a[i * n];
    for (std::size_t j = 0; j < i; ++j) row[j] = (row[j] - inner_product(row, &a[j * n], j)) / a[j * n + j];
    const double square = row[i] - inner_product(row, row, i);
    if (!(square > 0)) return false;
    row[i] = std::sqrt(square);
    b[i] = (b[i] - inner_product(row, b.data(), i)) / row[i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[k * n + i] * b[k];
    b[i] /= a[i * n + i];
  }
  return true;
}

// Minimises the sum of squares of N residuals over theta (P), f64. `residual` takes (theta, row of data...) and gives a scalar; the
// arrays of `data` have N rows. Gives the sum of squares after each step that was taken; theta is moved.
inline std::vector<double> levenberg_marquardt(const Function& residual, Array& theta, const std::vector<Array>& data,
                                               int steps) {
  std::vector<int> axes(data.size() + 1, 0);
  axes[0] = -1;  // theta is shared
  const auto with_data = [&](const Array& at) {
    std::vector<Array> all{at};
    all.insert(all.end(), data.begin(), data.end());
    return all;
  };
  const Jit value = jit([&](std::span<const Value> v) { return std::vector{sum(square(vmap(residual, axes)(v)[0]))}; });
  const Jit system = jit([&](std::span<const Value> v) {
    const Value r = vmap(residual, axes)(v)[0], j = per_sample_grad(residual, {0}, axes)(v)[0];  // (N), (N, P)
    return std::vector{dot(j, j, {{0}, {0}, {}, {}}), dot(j, r, {{0}, {0}, {}, {}}), sum(square(r))};
  });
  const auto n = static_cast<std::size_t>(theta.size());
  double mu = 1e-3;
  std::vector<double> losses;
  while (static_cast<int>(losses.size()) < steps) {
    const std::vector<Array> at = system(with_data(theta));
    const double before = at[2].at(0);
    bool taken = false;
    for (int tries = 0; tries < 12 && !taken; ++tries) {
      std::vector<double> a(at[0].data<double>().begin(), at[0].data<double>().end());
      std::vector<double> step(at[1].data<double>().begin(), at[1].data<double>().end());
      for (std::size_t i = 0; i < n; ++i) a[i * n + i] += mu * (1e-6 + a[i * n + i]);
      Array moved = theta.clone();
      if (solve_positive(a, step))
        for (std::size_t i = 0; i < n; ++i) {
          const auto k = static_cast<std::int64_t>(i);
          moved.set(k, theta.at(k) - step[i]);
        }
      const double after = value(with_data(moved))[0].at(0);
      taken = after < before;
      mu = taken ? std::max(mu / 4, 1e-12) : mu * 3;
      if (!taken) continue;
      theta = moved;
      losses.push_back(after);
    }
    if (!taken) break;
  }
  return losses;
}

// The parameters of tanh layers and a linear one, in one vector; and the network on x (widths[0]).
inline std::int64_t num_mlp_params(const std::vector<std::int64_t>& widths) {
  std::int64_t count = 0;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) count += (widths[l] + 1) * widths[l + 1];
  return count;
}
inline Array init_mlp(std::uint64_t seed, const std::vector<std::int64_t>& widths) {
  Array theta = Array::zeros(DType::F64, {num_mlp_params(widths)});
  std::int64_t next = 0;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
    const Array w = nn::glorot_uniform(nn::fold_in(seed, std::to_string(l)), {widths[l + 1], widths[l]}, DType::F64);
    for (std::int64_t i = 0; i < w.size(); ++i) theta.set(next++, w.at(i));
    next += widths[l + 1];
  }
  return theta;
}
inline Value apply_mlp(const std::vector<std::int64_t>& widths, Value theta, Value x) {
  std::int64_t next = 0;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
    const Value w = reshape(narrow(theta, 0, next, widths[l + 1] * widths[l]), {widths[l + 1], widths[l]});
    next += widths[l + 1] * widths[l];
    x = matmul(w, x) + narrow(theta, 0, next, widths[l + 1]);
    next += widths[l + 1];
    if (l + 2 < widths.size()) x = tanh(x);
  }
  return x;
}

}  // namespace hotloop::examples
