// Activation functions.
#include <numbers>

#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"

namespace hotloop {

// Derivative 0 at 0; a NaN is not "at most 0" and passes.
Value relu(Value x) { return select(less_equal(x, like(x, 0)), like(x, 0), x); }

// max(x, 0) + log1p(exp(-|x|)): no overflow at either end. Of selections, whose derivatives of every order are one side's at 0 too.
Value softplus(Value x) {
  const Value is_above = greater(x, like(x, 0));
  return select(is_above, x, like(x, 0)) + log1p(exp(select(is_above, -x, x)));
}

// x times the normal distribution function (Hendrycks and Gimpel 2016), not its tanh approximation.
Value gelu(Value x) { return 0.5 * x * (1.0 + erf(x * (1 / std::numbers::sqrt2))); }

Value clip(Value x, double low, double high) {
  if (!(low <= high))
    throw UserError("clip", "low must not be above high", print_number(low) + " and " + print_number(high));
  return minimum(maximum(x, like(x, low)), like(x, high));
}

}  // namespace hotloop
