#include "ops/composed/linalg_parts.h"

#include <vector>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop::linalg {

Value i32(std::int64_t n) { return constant(static_cast<double>(n), DType::I32); }
Value numbered(std::int64_t n) { return iota(DType::I32, {n}, 0); }
Value as_column(Value x) { return expand_dims(x, 1); }
Value as_row(Value x) { return expand_dims(x, 0); }

Value row(Value x, Value k) {
  std::vector<Value> starts(static_cast<std::size_t>(x.rank()), i32(0));
  starts[0] = k;
  std::vector<std::int64_t> sizes = x.shape().vec();
  sizes[0] = 1;
  return squeeze(dynamic_slice(x, starts, sizes), 0);
}
Value column(Value a, Value k) {
  const Value starts[] = {i32(0), k};
  return squeeze(dynamic_slice(a, starts, {a.shape()[0], 1}), 1);
}
Value with_row(Value x, Value part, Value k) {
  std::vector<Value> starts(static_cast<std::size_t>(x.rank()), i32(0));
  starts[0] = k;
  return dynamic_update(x, expand_dims(part, 0), starts);
}

Value turned(Value a) { return transpose(a, {1, 0}); }

Value upper_triangle(Value a) {
  const Value index = numbered(a.shape()[0]);
  return where(less(as_row(index), as_column(index)), like(a, 0), a);
}

Value on_diagonal(std::int64_t n) { return equal(as_column(numbered(n)), as_row(numbered(n))); }

Value where(Value condition, Value a, Value b) {
  const Value given[] = {condition, a, b};
  const auto all = ir::broadcast_together("where", given);
  return select(all[0], all[1], all[2]);
}

Value best_row(Value column, Value used) { return argmax(where(used, like(column, -1), abs(column)), 0); }

Value elimination_factors(Value column, Value pivot, Value used) {
  // Below a pivot of zero all is zero: nothing is to be eliminated.
  return where(used, like(column, 0), column / where(equal(pivot, like(pivot, 0)), like(pivot, 1), pivot));
}

Value parity_of(Value rows, DType dtype) {
  const Value index = numbered(rows.shape()[0]);
  const Value swapped = bit_and(less(as_column(index), as_row(index)), greater(as_column(rows), as_row(rows)));
  return 1.0 - 2.0 * cast(rem(sum(cast(swapped, DType::I32)), i32(2)), dtype);
}

LU packed(Value lower, Value upper, Value rows) {
  const Value index = numbered(rows.shape()[0]);
  return {where(greater(as_column(index), as_row(index)), turned(lower), upper), rows, parity_of(rows, upper.dtype())};
}

}  // namespace hotloop::linalg
