#include "minimizers/vectors.h"

#include <limits>

#include "hotloop/ops.h"

namespace hotloop::minimizers {

Value inner(Value a, Value b) { return cast(matmul(a, b), DType::F64); }

Value largest(Value x) { return reduce_max(abs(x), {0}); }

double resolution(DType dtype) {
  return dtype == DType::F64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

}  // namespace hotloop::minimizers
