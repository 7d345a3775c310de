#include <algorithm>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop {
namespace {

// x with its leading axes, all but the last two, broadcast to `batch`.
Value with_leading(Value x, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(x.shape()[x.rank() - 2]);
  shape.push_back(x.shape()[x.rank() - 1]);
  return broadcast_to(x, shape);
}

}  // namespace

Value matmul(Value a, Value b) {
  const Value both[] = {a, b};
  ir::require_defined("matmul", both);
  const auto mismatch = [&](const std::string& what) {
    return UserError("matmul", what, ir::types_text(both), "transpose() or reshape() an operand");
  };
  if (a.rank() == 0 || b.rank() == 0) throw mismatch("operands must have at least one axis");
  const std::int64_t contract_a = a.rank() - 1, contract_b = b.rank() == 1 ? 0 : b.rank() - 2;
  if (a.dtype() != b.dtype()) throw mismatch("both operands must have one dtype");
  if (a.shape()[static_cast<int>(contract_a)] != b.shape()[static_cast<int>(contract_b)])
    throw mismatch("the last axis of a and the last but one of b must have the same extent");
  // With batch axes on one side at most they are free axes of the dot.
  if (b.rank() <= 2) return dot(a, b, {{contract_a}, {contract_b}, {}, {}});
  if (a.rank() == 1) return dot(b, a, {{contract_b}, {contract_a}, {}, {}});
  std::vector<std::int64_t> batch(static_cast<std::size_t>(std::max(a.rank(), b.rank()) - 2), 1);
  for (const Value& v : both) {
    for (int i = 0; i < v.rank() - 2; ++i) {
      std::int64_t& extent = batch[batch.size() - static_cast<std::size_t>(v.rank() - 2 - i)];
      if (extent == 1)
        extent = v.shape()[i];
      else if (v.shape()[i] != 1 && v.shape()[i] != extent)
        throw mismatch("leading axes must broadcast");
    }
  }
  const std::vector<std::int64_t> axes = ir::iota_axes(static_cast<int>(batch.size()));
  const auto n = static_cast<std::int64_t>(batch.size());
  return dot(with_leading(a, Shape(batch)), with_leading(b, Shape(batch)), {{n + 1}, {n}, axes, axes});
}

}  // namespace hotloop
