#include "ops/composed/linalg_columns.h"

#include <vector>

#include "hotloop/ops.h"

namespace hotloop::linalg::columns {
namespace {

// A number for each row of b, (n,), against b.
Value beside(Value numbers, const Value& b) { return b.rank() > 1 ? as_column(numbers) : numbers; }

// One unknown after the other, each taken out of what is left of b: the k-th is number `places[k]` of that, and m's k-th row tells how much
// of it all of b has. With `divides`, over m's own number there.
Value forward(Value m, Value b, Value places, bool divides) {
  const auto step = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value own = row(carry[0], xs[1]), found = divides ? own / row(xs[0], xs[1]) : own;
    const Value next = carry[0] - as_column(xs[0]) * as_row(found);
    return std::pair(std::vector<Value>{next}, std::vector<Value>{found});
  };
  return scan(step, std::vector<Value>{b}, std::vector<Value>{m, places}).second[0];
}

// From the last unknown to the first, what m's k-th row has of those known already taken from y's; it is number `places[k]` of the result.
Value backward(Value m, Value y, Value places, bool divides) {
  const auto step = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value rest = xs[1] - matmul(xs[0], carry[0]), found = divides ? rest / row(xs[0], xs[2]) : rest;
    return std::pair(std::vector<Value>{with_row(carry[0], found, xs[2])}, std::vector<Value>{});
  };
  return scan(step, std::vector<Value>{zeros_like(y)}, std::vector<Value>{m, y, places}, {.reverse = true}).first[0];
}

}  // namespace

Factors factorize(Value a) {
  const std::int64_t n = a.shape()[0];
  const Value index = numbered(n);
  const auto step = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value rest = carry[0], at_k = column(rest, xs[0]);
    const Value best = best_row(at_k, carry[1]), chosen = row(rest, best);
    const Value used = bit_or(carry[1], equal(index, best));
    const Value factor = elimination_factors(at_k, row(chosen, xs[0]), used);
    const Value next = rest - as_column(factor) * as_row(chosen);
    return std::pair(std::vector<Value>{next, used}, std::vector<Value>{factor, chosen, best});
  };
  const std::vector<Value> init = {a, less(index, i32(0))};
  const auto found = scan(step, init, std::vector<Value>{index}).second;
  return {found[0], found[1], found[2]};
}

Value substitute(const Factors& factors, Value b, bool transposed) {
  const auto [lower, upper, rows] = factors;
  const Value index = numbered(b.shape()[0]);
  return transposed ? backward(lower, forward(upper, b, index, true), rows, false)
                    : backward(upper, forward(lower, b, rows, false), index, true);
}

Value substitute_upper(Value u, Value b, bool transposed) {
  const Value index = numbered(b.shape()[0]);
  return transposed ? forward(u, b, index, true) : backward(u, b, index, true);
}

LU packed_factors(Value a) {
  const Factors found = factorize(a);
  return packed(gather(found.lower, found.rows, 1), found.upper, found.rows);
}

Value substitute(const LU& factors, Value b) {
  const Value lu = factors.lu, index = numbered(b.shape()[0]);
  const std::vector<Value> steps = {index};
  const auto forward = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value k = xs[0], at_k = column(lu, k);
    const Value factor = select(greater(index, k), at_k, zeros_like(at_k));
    return std::pair(std::vector<Value>{carry[0] - beside(factor, b) * row(carry[0], k)}, std::vector<Value>{});
  };
  const auto backward = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value k = xs[0], at_k = column(lu, k);
    const Value found = row(carry[0], k) / row(at_k, k);
    const Value above = select(less(index, k), at_k, zeros_like(at_k));
    const Value rest = carry[0] - beside(above, b) * found;
    const Value is_own = broadcast_to(beside(equal(index, k), b), b.shape());
    return std::pair(std::vector<Value>{select(is_own, broadcast_to(found, b.shape()), rest)}, std::vector<Value>{});
  };
  const auto lower = scan(forward, std::vector<Value>{gather(b, factors.rows, 0)}, steps).first;
  return scan(backward, lower, steps, {.reverse = true}).first[0];
}

// Row by row of L^T, each written alone: column k of L is what earlier ones leave of a's.
Value cholesky(Value a) {
  const Value index = numbered(a.shape()[0]);
  const auto step = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value k = xs[0], found = carry[0];
    const Value rest = column(a, k) - matmul(column(found, k), found);
    const Value own = select(less(index, k), zeros_like(rest), rest / sqrt(row(rest, k)));
    return std::pair(std::vector<Value>{with_row(found, own, k)}, std::vector<Value>{});
  };
  return turned(scan(step, std::vector<Value>{zeros_like(a)}, std::vector<Value>{index}).first[0]);
}

}  // namespace hotloop::linalg::columns
