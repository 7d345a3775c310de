// Root mean squares of scaled leaves, as error control measures them.
#pragma once

#include "hotloop/ode.h"

namespace hotloop::ode {

// sqrt of the mean over all elements of all leaves of x^2, in `dtype`.
Value rms(const Leaves& leaves, DType dtype);

// For each leaf what counts as an error of one, atol + rtol |y|, where `magnitudes` are |y|. It is never zero: the error of what is exact is.
Leaves error_sizes(const Leaves& magnitudes, const Tolerance& rtol, const Tolerance& atol);
Leaves magnitudes(const Leaves& y);
// rms(error / sizes).
Value scaled_norm(const Leaves& error, const Leaves& sizes, DType dtype);

// A first step for a method of that order (Hairer, Norsett, Wanner 1993, section II.4), at the price of two evaluations.
Value initial_step(const VectorField& field, Value t0, const Leaves& y0, int error_order, const Tolerance& rtol,
                   const Tolerance& atol);

}  // namespace hotloop::ode
