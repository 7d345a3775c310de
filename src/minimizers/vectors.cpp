#include "minimizers/vectors.h"

#include "hotloop/ops.h"

namespace hotloop::minimizers {

Value inner(Value a, Value b) { return cast(matmul(a, b), DType::F64); }

Value largest(Value x) { return reduce_max(abs(x), {0}); }

}  // namespace hotloop::minimizers
