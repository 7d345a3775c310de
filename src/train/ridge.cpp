#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "hotloop/error.h"
#include "hotloop/fit.h"

namespace hotloop::train {
namespace {

using data::Dataset;
constexpr std::int64_t block_rows = 64;

// Calls f(inputs as doubles [n, features], targets [n], n) for the samples of a dataset, a block at a time.
template <class F> void for_each_block(const Dataset& samples, F&& f) {
  const std::int64_t features = samples.input_shape().size();
  Array inputs(samples.dtype(), {block_rows, features}), targets(samples.dtype(), {block_rows});
  std::vector<double> a(static_cast<std::size_t>(block_rows * features)), y(static_cast<std::size_t>(block_rows));
  std::vector<std::int64_t> rows;
  for (std::int64_t start = 0; start < samples.size(); start += block_rows) {
    rows.resize(static_cast<std::size_t>(std::min(block_rows, samples.size() - start)));
    std::iota(rows.begin(), rows.end(), start);
    samples.gather(rows, {.inputs = inputs.raw(), .targets = targets.raw()});
    visit_dtype(samples.dtype(), [&]<class T>(T) {
      const std::size_t used = rows.size() * static_cast<std::size_t>(features);
      std::copy_n(static_cast<const T*>(inputs.raw()), used, a.begin());
      std::copy_n(static_cast<const T*>(targets.raw()), rows.size(), y.begin());
    });
    f(std::span<const double>(a), std::span<const double>(y), rows.size());
  }
}

// Solves the symmetric positive definite system g w = b; the lower triangle of g becomes its Cholesky factor.
std::vector<double> solve_cholesky(std::vector<double> g, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      const double rest = g[i * n + j] - std::inner_product(&g[i * n], &g[i * n] + j, &g[j * n], 0.0);
      if (i == j && !(rest > 0))
        throw UserError("ridge", "the normal equations must be positive definite",
                        "a pivot that is not, in column " + std::to_string(i), "a larger lambda");
      g[i * n + j] = i == j ? std::sqrt(rest) : rest / g[j * n + j];
    }
  for (std::size_t i = 0; i < n; ++i)
    b[i] = (b[i] - std::inner_product(&g[i * n], &g[i * n] + i, b.data(), 0.0)) / g[i * n + i];
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= g[k * n + i] * b[k];
    b[i] /= g[i * n + i];
  }
  return b;
}

double mean_absolute_error(const Ridge& model, const Dataset& samples) {
  const std::vector<double> predicted = model.predict(samples);
  double sum = 0;
  std::size_t at = 0;
  for_each_block(samples, [&](std::span<const double>, std::span<const double> y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) sum += std::abs(predicted[at++] - y[i]);
  });
  return sum / static_cast<double>(predicted.size());
}

}  // namespace

std::vector<double> Ridge::predict(const Dataset& samples) const {
  std::vector<double> out;
  for_each_block(samples, [&](std::span<const double> a, std::span<const double>, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      out.push_back(std::inner_product(weights.begin(), weights.end(), &a[i * weights.size()], 0.0));
  });
  return out;
}

Ridge fit_ridge(const Dataset& training, const Dataset& validation, std::span<const double> lambdas) {
  if (training.target_shape().size() != 1)
    throw UserError("ridge", "the targets must be one number a sample", training.target_shape().str(),
                    "a ridge of each target");
  if (lambdas.empty() || validation.size() == 0)
    throw UserError("ridge", "at least one lambda and one validation sample are needed",
                    std::to_string(lambdas.size()) + " lambdas, " + std::to_string(validation.size()) + " samples");
  const auto features = static_cast<std::size_t>(training.input_shape().size());
  std::vector<double> gram(features * features, 0.0), moments(features, 0.0);
  for_each_block(training, [&](std::span<const double> a, std::span<const double> y, std::size_t n) {
    for (std::size_t i = 0; i < features; ++i)
      for (std::size_t s = 0; s < n; ++s) {
        const double* row = &a[s * features];
        const double factor = row[i];
        double* out = &gram[i * features];
        for (std::size_t j = 0; j <= i; ++j) out[j] += factor * row[j];
        moments[i] += factor * y[s];
      }
  });

  Ridge best;
  best.validation_mae = std::numeric_limits<double>::infinity();
  for (const double lambda : lambdas) {
    std::vector<double> penalised = gram;
    for (std::size_t i = 0; i < features; ++i) penalised[i * features + i] += lambda;
    Ridge candidate{lambda, 0, solve_cholesky(std::move(penalised), moments)};
    candidate.validation_mae = mean_absolute_error(candidate, validation);
    if (candidate.validation_mae < best.validation_mae) best = std::move(candidate);
  }
  if (best.weights.empty())
    throw UserError("ridge", "the validation error must be finite",
                    std::to_string(lambdas.size()) + (lambdas.size() == 1 ? " lambda" : " lambdas") + " without one",
                    "a larger lambda, or inputs and targets that are smaller");
  return best;
}

}  // namespace hotloop::train
