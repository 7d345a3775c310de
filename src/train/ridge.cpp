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

// Of the one input; UserError for several.
std::int64_t features_of(const Dataset& samples) { return samples.input_type(1).shape.size(); }

// Calls f(inputs as doubles [n, features], targets [n, outputs], n) for the samples of a dataset, a block at a time.
template <class F> void for_each_block(const Dataset& samples, F&& f) {
  const std::int64_t features = features_of(samples), outputs = samples.target_shape().size();
  Array inputs(samples.dtype(), {block_rows, features}), targets(samples.dtype(), {block_rows, outputs});
  std::vector<double> a(static_cast<std::size_t>(block_rows * features)),
      y(static_cast<std::size_t>(block_rows * outputs));
  std::vector<std::int64_t> rows;
  for (std::int64_t start = 0; start < samples.size(); start += block_rows) {
    rows.resize(static_cast<std::size_t>(std::min(block_rows, samples.size() - start)));
    std::iota(rows.begin(), rows.end(), start);
    samples.gather(rows, {.inputs = inputs.raw(), .targets = targets.raw()});
    visit_dtype(samples.dtype(), [&]<class T>(T) {
      const auto used = [&](std::int64_t width) { return rows.size() * static_cast<std::size_t>(width); };
      std::copy_n(static_cast<const T*>(inputs.raw()), used(features), a.begin());
      std::copy_n(static_cast<const T*>(targets.raw()), used(outputs), y.begin());
    });
    f(std::span<const double>(a), std::span<const double>(y), rows.size());
  }
}

// The lower triangle of a symmetric positive definite g [n, n] becomes its Cholesky factor.
void factorize(std::span<double> g, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      const double rest = g[i * n + j] - std::inner_product(&g[i * n], &g[i * n] + j, &g[j * n], 0.0);
      if (i == j && !(rest > 0))
        throw UserError("ridge", "the normal equations must be positive definite",
                        "a pivot that is not, in column " + std::to_string(i), "a larger lambda");
      g[i * n + j] = i == j ? std::sqrt(rest) : rest / g[j * n + j];
    }
}

// b becomes the solution of g w = b, by the factor of g.
void solve(std::span<const double> factor, std::span<double> b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i)
    b[i] = (b[i] - std::inner_product(&factor[i * n], &factor[i * n] + i, b.data(), 0.0)) / factor[i * n + i];
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= factor[k * n + i] * b[k];
    b[i] /= factor[i * n + i];
  }
}

struct Means {
  std::vector<double> inputs, targets;
};

Means means_of(const Dataset& samples) {
  Means means{std::vector<double>(static_cast<std::size_t>(features_of(samples))),
              std::vector<double>(static_cast<std::size_t>(samples.target_shape().size()))};
  const auto add = [](std::vector<double>& sums, std::span<const double> rows, std::size_t n) {
    for (std::size_t i = 0; i < n * sums.size(); ++i) sums[i % sums.size()] += rows[i];
  };
  for_each_block(samples, [&](std::span<const double> a, std::span<const double> y, std::size_t n) {
    add(means.inputs, a, n);
    add(means.targets, y, n);
  });
  for (std::vector<double>* sums : {&means.inputs, &means.targets})
    for (double& sum : *sums) sum /= static_cast<double>(samples.size());
  return means;
}

double mean_absolute_error(const Ridge& model, const Dataset& samples) {
  const std::vector<double> predicted = model.predict(samples);
  double sum = 0;
  std::size_t at = 0;
  for_each_block(samples, [&](std::span<const double>, std::span<const double> y, std::size_t n) {
    const std::size_t used = n * static_cast<std::size_t>(samples.target_shape().size());
    for (std::size_t i = 0; i < used; ++i) sum += std::abs(predicted[at++] - y[i]);
  });
  return sum / static_cast<double>(predicted.size());
}

}  // namespace

std::vector<double> Ridge::predict(const Dataset& samples) const {
  const auto features = static_cast<std::size_t>(features_of(samples));
  std::vector<double> out;
  for_each_block(samples, [&](std::span<const double> a, std::span<const double>, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k * features < weights.size(); ++k)
        out.push_back(std::inner_product(&a[i * features], &a[i * features] + features, &weights[k * features],
                                         intercepts.empty() ? 0.0 : intercepts[k]));
  });
  return out;
}

Ridge fit_ridge(const Dataset& training, const Dataset& validation, std::span<const double> lambdas) {
  if (lambdas.empty() || validation.size() == 0)
    throw UserError("ridge", "at least one lambda and one validation sample are needed",
                    std::to_string(lambdas.size()) + " lambdas, " + std::to_string(validation.size()) + " samples");
  const auto features = static_cast<std::size_t>(features_of(training)),
             outputs = static_cast<std::size_t>(training.target_shape().size());
  const Means means = means_of(training);
  std::vector<double> gram(features * features, 0.0), moments(outputs * features, 0.0);
  for_each_block(training, [&](std::span<const double> a, std::span<const double> y, std::size_t n) {
    for (std::size_t i = 0; i < features; ++i)
      for (std::size_t s = 0; s < n; ++s) {
        const double* row = &a[s * features];
        const double factor = row[i] - means.inputs[i];
        double* out = &gram[i * features];
        for (std::size_t j = 0; j <= i; ++j) out[j] += factor * (row[j] - means.inputs[j]);
        for (std::size_t k = 0; k < outputs; ++k)
          moments[k * features + i] += factor * (y[s * outputs + k] - means.targets[k]);
      }
  });

  Ridge best;
  best.validation_mae = std::numeric_limits<double>::infinity();
  for (const double lambda : lambdas) {
    std::vector<double> penalised = gram;
    for (std::size_t i = 0; i < features; ++i) penalised[i * features + i] += lambda;
    factorize(penalised, features);
    Ridge candidate{lambda, 0, moments, means.targets};
    for (std::size_t k = 0; k < outputs; ++k) {
      const std::span<double> weights = std::span(candidate.weights).subspan(k * features, features);
      solve(penalised, weights);
      candidate.intercepts[k] -= std::inner_product(weights.begin(), weights.end(), means.inputs.begin(), 0.0);
    }
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
