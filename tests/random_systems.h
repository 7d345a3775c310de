// What elimination does, for programs drawn at random (random_arrays.h): a matrix that is looked up in while it changes, and systems.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotloop/linalg.h"
#include "hotloop/ops.h"

namespace hotloop::testing {

// Of each row of `m` so much of the row at `places[t]` as its column `columns[t]` tells, one step after the other; with the rows that were taken.
inline std::pair<Value, Value> eliminated(Value m, Value places, Value columns) {
  const auto step = [](std::span<const Value> c, std::span<const Value> x) {
    const Value row = gather(c[0], x[0], 0), column = gather(c[0], x[1], 1);
    const Value next = c[0] * 0.9 - 0.2 * tanh(expand_dims(column, 1) * expand_dims(row, 0));
    return std::pair{std::vector{next}, std::vector{row}};
  };
  const Value init[] = {m}, xs[] = {places, columns};
  const auto [carry, rows] = scan(step, init, xs);
  return {carry[0], rows[0]};
}

// What `kind` makes of a matrix that is well conditioned whatever m, (n, n), is.
inline Value of_system(Value m, int kind) {
  const std::int64_t n = m.shape()[0];
  const Value index = iota(DType::I32, {n}, 0), bounded = sin(m) * (1 / static_cast<double>(n));
  const Value diagonal = cast(equal(expand_dims(index, 0), expand_dims(index, 1)), m.dtype()) * 2.0;
  const Value symmetric = bounded + transpose(bounded, {1, 0}) + diagonal + diagonal;
  switch (kind) {
    case 0: return linalg::solve(bounded + diagonal, m);
    case 1: return linalg::cholesky(symmetric);
    case 2: return linalg::solve_triangular(bounded + diagonal, m, false);
    case 3: return linalg::cholesky_solve(linalg::cholesky(symmetric), m);
    default: return m * linalg::slogdet(bounded + diagonal).second;
  }
}

}  // namespace hotloop::testing
