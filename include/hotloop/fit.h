// Fitting: the loop around one compiled step, and the simple models that results are compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hotloop/data.h"

namespace hotloop::train {

// Linear least squares on the flattened inputs with penalty lambda |w|^2 and no intercept (the data are standardised):
// w = (A'A + lambda I)^-1 A'y by the normal equations and a Cholesky factorisation, in double.
struct Ridge {
  double lambda = 0;
  double validation_mae = 0;    // in the units of the dataset's targets
  std::vector<double> weights;  // [size of one input]

  // One number a sample.
  std::vector<double> predict(const data::Dataset& samples) const;
};
// Fits on `training` for each of `lambdas` and keeps the one with the least mean absolute error on `validation`.
// The targets must be one number a sample.
Ridge fit_ridge(const data::Dataset& training, const data::Dataset& validation, std::span<const double> lambdas);

}  // namespace hotloop::train
