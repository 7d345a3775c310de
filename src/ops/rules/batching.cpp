#include "ops/rules/batching.h"

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop::ir {

Value with_batch(const Batched& operand, std::int64_t size) {
  if (operand.batched) return operand.value;
  const Shape& shape = operand.value.shape();
  return broadcast(operand.value, shape.with_inserted(0, size), shifted(iota_axes(shape.rank())));
}

std::vector<Value> all_with_batch(const BatchContext& c) {
  std::vector<Value> values;
  for (const Batched& operand : c.operands) values.push_back(with_batch(operand, c.size));
  return values;
}

Value axis_to_front(Value x, std::int64_t axis) {
  std::vector<std::int64_t> permutation = {axis};
  for (std::int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) permutation.push_back(i);
  return transpose(x, permutation);
}

Value front_to_axis(Value x, std::int64_t axis) {
  std::vector<std::int64_t> permutation;
  for (std::int64_t i = 1; i < x.rank(); ++i) permutation.push_back(i);
  permutation.insert(permutation.begin() + axis, 0);
  return transpose(x, permutation);
}

std::vector<std::int64_t> shifted(std::vector<std::int64_t> axes) {
  for (std::int64_t& axis : axes) ++axis;
  return axes;
}

std::vector<std::int64_t> prepended(std::int64_t first, const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> result = {first};
  result.insert(result.end(), values.begin(), values.end());
  return result;
}

std::vector<Batched> batch_elementwise(const BatchContext& c) {
  return {{current_graph().append(*c.node.op, all_with_batch(c), c.node.attrs)->result(), true}};
}

}  // namespace hotloop::ir
