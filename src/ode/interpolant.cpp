#include "ode/interpolant.h"

#include "hotloop/ops.h"

namespace hotloop::ode {

Leaves interpolate(const Leaves& y0, const std::vector<Leaves>& terms, Value x) {
  Leaves y;
  for (std::size_t i = 0; i < y0.size(); ++i) {
    const Value at = cast(x, y0[i].dtype());
    Value sum = terms.back()[i];
    for (std::size_t j = terms.size() - 1; j-- > 0;) sum = terms[j][i] + at * sum;
    y.push_back(y0[i] + at * sum);
  }
  return y;
}

}  // namespace hotloop::ode
