#include "ops/composed/linalg_blocks.h"

#include <vector>

#include "hotloop/ops.h"

namespace hotloop::linalg::blocks {
namespace {

// Columns of a block. A matrix of fewer rows than are worth it is one block.
std::int64_t block_of(std::int64_t n) { return n >= fewest_rows ? 16 : n; }
std::int64_t num_missing(std::int64_t n) { return (block_of(n) - n % block_of(n)) % block_of(n); }

// Products of fewer columns than that end in masked ones at each turn.
constexpr std::int64_t vector_columns = 16;

Value starts(std::int64_t n) { return numbered(n / block_of(n)) * i32(block_of(n)); }

Value rows(Value a, Value from, std::int64_t count) {
  const Value at[] = {from, i32(0)};
  return dynamic_slice(a, at, {count, a.shape()[1]});
}
Value columns(Value a, Value from, std::int64_t count) {
  const Value at[] = {i32(0), from};
  return dynamic_slice(a, at, {a.shape()[0], count});
}
Value with_rows(Value a, Value part, Value from) {
  const Value at[] = {from, i32(0)};
  return dynamic_update(a, part, at);
}
Value identity(DType dtype, std::int64_t n) { return cast(on_diagonal(n), dtype); }

// Of the transposes of the blocks on u's diagonal: (blocks, rows of one, rows of one), lower triangles.
Value block_inverses(Value u) {
  const std::int64_t size = block_of(u.shape()[0]), n = u.shape()[0] / size;
  const Value parts = reshape(u, {n, size, n, size});
  const Value is_own = reshape(on_diagonal(n), {n, 1, n, 1});
  const Value own = reduce_sum(where(is_own, parts, like(u, 0)), {2});
  const Value within = numbered(size);
  // The k-th rows of all blocks, (blocks, size).
  const auto rows_at = [&](Value x, Value k) {
    const Value at[] = {i32(0), k, i32(0)};
    return reshape(dynamic_slice(x, at, {n, 1, size}), {n, size});
  };
  const auto step = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value k = xs[0], at_k = rows_at(own, k), x = carry[0];
    const Value at[] = {i32(0), k}, pivots = dynamic_slice(at_k, at, {n, 1});
    const Value found = expand_dims(rows_at(x, k) / pivots, 1);
    const Value right = where(greater(within, k), at_k, like(u, 0));
    const Value next = where(as_column(equal(within, k)), found, x - expand_dims(right, 2) * found);
    return std::pair(std::vector<Value>{next}, std::vector<Value>{});
  };
  const Value start = broadcast_to(identity(u.dtype(), size), {n, size, size});
  return scan(step, std::vector<Value>{start}, std::vector<Value>{within}).first[0];
}

// Of whole blocks.
Value substitute_blocks(Value u, Value b, bool transposed) {
  const std::int64_t size = block_of(u.shape()[0]);
  const auto step = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value start = xs[0], inverse = xs[1];
    const Value part = transposed ? turned(columns(u, start, size)) : rows(u, start, size);
    const Value rest = rows(b, start, size) - matmul(part, carry[0]);
    const Value found = matmul(transposed ? inverse : turned(inverse), rest);
    return std::pair(std::vector<Value>{with_rows(carry[0], found, start)}, std::vector<Value>{});
  };
  const std::vector<Value> xs = {starts(u.shape()[0]), block_inverses(u)};
  return scan(step, std::vector<Value>{zeros_like(b)}, xs, {.reverse = !transposed}).first[0];
}

// u with u^T u = a, one row after the other.
Value cholesky_by_rows(Value a) {
  const Value index = numbered(a.shape()[0]);
  const auto step = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value k = xs[0], found = carry[0];
    const Value rest = row(a, k) - matmul(column(found, k), found);
    const Value own = where(less(index, k), like(a, 0), rest / sqrt(row(rest, k)));
    const Value next = where(as_column(equal(index, k)), as_row(own), found);
    return std::pair(std::vector<Value>{next}, std::vector<Value>{});
  };
  return scan(step, std::vector<Value>{zeros_like(a)}, std::vector<Value>{index}).first[0];
}

}  // namespace

Value padded(Value a) {
  const std::int64_t n = a.shape()[0], missing = num_missing(n);
  if (missing == 0) return a;
  const Value is_new = bit_and(on_diagonal(n + missing), greater_equal(as_column(numbered(n + missing)), i32(n)));
  return where(is_new, like(a, 1), pad(a, like(a, 0), {0, 0}, {missing, missing}));
}

Value padded_right_side(Value b) {
  const std::int64_t missing = num_missing(b.shape()[0]), k = b.shape()[1];
  const std::int64_t more = k > vector_columns ? (vector_columns - k % vector_columns) % vector_columns : 0;
  return missing + more == 0 ? b : pad(b, like(b, 0), {0, 0}, {missing, more});
}

Value beginning(Value x, Value of) { return narrow(narrow(x, 0, 0, of.shape()[0]), 1, 0, of.shape()[1]); }

// Rows keep their places until all are chosen.
Factors factorize(Value whole) {
  const std::int64_t n = whole.shape()[0], size = block_of(n);
  const Value index = numbered(n), within = numbered(size), zero = like(whole, 0), one = like(whole, 1);
  const auto block = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value a = carry[0], start = xs[0];
    // The block lies on its side, so that a column is contiguous.
    const auto eliminate = [&](std::span<const Value> c, std::span<const Value> x) {
      const Value panel = c[0], at_k = row(panel, x[0]);
      const Value best = best_row(at_k, c[1]), chosen = column(panel, best);
      const Value used = bit_or(c[1], equal(index, best));
      const Value factor = elimination_factors(at_k, row(chosen, x[0]), used);
      const Value next = panel - as_column(chosen) * as_row(factor);
      return std::pair(std::vector<Value>{next, used}, std::vector<Value>{factor, best});
    };
    const std::vector<Value> init = {turned(columns(a, start, size)), carry[1]};
    const auto [ends, found] = scan(eliminate, init, std::vector<Value>{within});
    const Value factors = found[0], order = found[1];
    const Value own = where(on_diagonal(size), one, gather(factors, order, 1));
    const Value all = matmul(take(block_inverses(own), 0, 0), gather(a, order, 0));
    const Value u = where(greater_equal(as_row(index), start + as_column(within)), all, zero);
    return std::pair(std::vector<Value>{a - matmul(turned(factors), u), ends[1]},
                     std::vector<Value>{factors, u, order});
  };
  const std::vector<Value> init = {whole, less(index, i32(0))};
  const auto found = scan(block, init, std::vector<Value>{starts(n)}).second;
  const Value order = reshape(found[2], {n}), upper = reshape(found[1], {n, n});
  const Value lower = gather(reshape(found[0], {n, n}), order, 1);
  return {where(on_diagonal(n), one, lower), upper, order};
}

Value substitute(const Factors& factors, Value b, bool transposed) {
  const Value lower = factors.lower, upper = factors.upper;
  if (!transposed) return substitute_blocks(upper, substitute_blocks(lower, gather(b, factors.rows, 0), true), false);
  const Value x = substitute_blocks(lower, substitute_blocks(upper, b, true), false);
  return scatter_add(zeros_like(x), factors.rows, x, 0);
}

LU packed_factors(Value a) {
  const Factors found = factorize(padded(a));
  const std::int64_t n = a.shape()[0];
  const LU whole = packed(found.lower, found.upper, found.rows);
  return {narrow(narrow(whole.lu, 0, 0, n), 1, 0, n), narrow(whole.rows, 0, 0, n), whole.parity};
}

Value substitute(const LU& factors, Value b, bool transposed) {
  const std::int64_t n = b.shape()[0], missing = num_missing(n);
  const Value lower = where(on_diagonal(n), like(b, 1), upper_triangle(turned(factors.lu)));
  Value rows = factors.rows;
  if (missing > 0) {
    const Value parts[] = {rows, numbered(missing) + i32(n)};
    rows = concat(parts, 0);
  }
  const Factors whole = {padded(lower), padded(upper_triangle(factors.lu)), rows};
  return beginning(substitute(whole, padded_right_side(b), transposed), b);
}

Value substitute_upper(Value u, Value b, bool transposed) {
  return beginning(substitute_blocks(padded(u), padded_right_side(b), transposed), b);
}

Value cholesky(Value a) {
  const std::int64_t n = a.shape()[0], size = block_of(n);
  const Value index = numbered(n), within = numbered(size);
  const auto block = [&](std::span<const Value> carry, std::span<const Value> xs) {
    const Value found = carry[0], start = xs[0];
    const Value rest = rows(a, start, size) - matmul(turned(columns(found, start, size)), found);
    const Value own = cholesky_by_rows(columns(rest, start, size));
    const Value all = matmul(take(block_inverses(own), 0, 0), rest);
    const Value next = where(less(as_row(index), start + as_column(within)), like(a, 0), all);
    return std::pair(std::vector<Value>{with_rows(found, next, start)}, std::vector<Value>{});
  };
  return scan(block, std::vector<Value>{zeros_like(a)}, std::vector<Value>{starts(n)}).first[0];
}

}  // namespace hotloop::linalg::blocks
