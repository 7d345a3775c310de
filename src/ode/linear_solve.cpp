#include "ode/linear_solve.h"

#include "hotloop/ops.h"

namespace hotloop::ode {
namespace {

Value zero() { return constant(0, DType::I32); }

// Column, row and element k of what is square, and the k-th of a vector.
Value column(Value a, Value k) {
  const Value starts[] = {zero(), k};
  return reshape(dynamic_slice(a, starts, {a.shape()[0], 1}), {a.shape()[0]});
}
Value row(Value a, Value k) {
  const Value starts[] = {k, zero()};
  return reshape(dynamic_slice(a, starts, {1, a.shape()[1]}), {a.shape()[1]});
}
Value element(Value x, Value k) {
  const Value starts[] = {k};
  return reshape(dynamic_slice(x, starts, {1}), {});
}

// Substitution forwards with the unit lower triangle, then backwards with the upper one.
Value substitute(Value lu, Value rows, Value b) {
  const std::int64_t n = b.shape()[0];
  const Value index = iota(DType::I32, {n}, 0);
  const std::vector<Value> steps = {index};
  const auto forward = scan(
      [&](std::span<const Value> carry, std::span<const Value> xs) {
        const Value k = xs[0], below = greater(index, k);
        const Value change = column(lu, k) * element(carry[0], k);
        return std::pair(std::vector<Value>{carry[0] - select(below, change, zeros_like(change))},
                         std::vector<Value>{});
      },
      std::vector<Value>{gather(b, rows, 0)}, steps);
  const auto backward = scan(
      [&](std::span<const Value> carry, std::span<const Value> xs) {
        const Value k = xs[0], upper = column(lu, k);
        const Value x = element(carry[0], k) / element(upper, k);
        const Value rest = select(less(index, k), carry[0] - upper * x, carry[0]);
        return std::pair(std::vector<Value>{select(equal(index, k), broadcast_to(x, {n}), rest)}, std::vector<Value>{});
      },
      forward.first, steps, {.reverse = true});
  return backward.first[0];
}

Value solve_call(Value a, Value lu, Value rows, Value b, int order) {
  const std::vector<Value> operands = {a, lu, rows, b};
  std::vector<ValueType> types;
  for (const Value& v : operands) types.push_back(v.type());
  const auto body = trace([](std::span<const Value> v) { return std::vector<Value>{substitute(v[1], v[2], v[3])}; },
                          types, "lu_solve");
  auto with_tangents = types;
  with_tangents.insert(with_tangents.end(), types.begin(), types.end());
  const auto rule = trace(
      [&](std::span<const Value> v) {
        const auto again = [&](Value rhs) {
          return order > 1 ? solve_call(v[0], v[1], v[2], rhs, order - 1) : substitute(v[1], v[2], rhs);
        };
        const Value x = again(v[3]);
        return std::vector<Value>{x, again(v[7] - matmul(v[4], x))};
      },
      with_tangents, "lu_solve_jvp");
  return call(body, operands, "lu_solve", rule)[0];
}

}  // namespace

Factors factorize(Value a) {
  const std::int64_t n = a.shape()[0];
  a = stop_gradient(a);
  const Value index = iota(DType::I32, {n}, 0);
  const auto [carry, ys] = scan(
      [&](std::span<const Value> c, std::span<const Value> xs) {
        const Value k = xs[0];
        const Value size = abs(column(c[0], k));
        const Value best = argmax(select(greater_equal(index, k), size, like(size, -1)), 0);
        const Value swapped =
            select(equal(index, k), broadcast_to(best, {n}), select(equal(index, best), broadcast_to(k, {n}), index));
        const Value lu = gather(c[0], swapped, 0), rows = gather(c[1], swapped, 0);
        const Value at_k = column(lu, k), pivot_row = row(lu, k);
        const Value factor = select(greater(index, k), at_k / element(at_k, k), zeros_like(at_k));
        const Value eliminated = lu - expand_dims(factor, 1) * expand_dims(pivot_row, 0);
        // Left of the pivot stand the factors of earlier columns; below it come its own.
        const Value columns = expand_dims(index, 0), below = expand_dims(greater(index, k), 1);
        const Value kept = select(greater(columns, k), eliminated, lu);
        const Value next = select(bit_and(broadcast_to(equal(columns, k), {n, n}), broadcast_to(below, {n, n})),
                                  broadcast_to(expand_dims(factor, 1), {n, n}), kept);
        return std::pair(std::vector<Value>{next, rows}, std::vector<Value>{});
      },
      std::vector<Value>{a, index}, std::vector<Value>{index});
  return {stop_gradient(carry[0]), carry[1]};
}

Value solve_with(Value a, const Factors& factors, Value b) { return solve_call(a, factors.lu, factors.rows, b, 3); }

}  // namespace hotloop::ode
