// Sorting and searching. A NaN counts as the largest number. Shapes are static, so nothing here depends on values for its shape.
#pragma once

#include <cstdint>
#include <utility>

#include "hotloop/graph.h"

namespace hotloop {

// x with its elements along `axis` in order, equal ones as they were; largest first if `descending`. The derivative goes with the
// elements. Fewer than 256 by a sorting network: about n log2(n)^2 / 2 comparisons, in vectors, in one loop of small body. More by their digits, of
// eight bits, one after the other: rows one after the other where they are fewer than 64.
Value sort(Value x, int axis, bool descending = false);
// The i32 positions that do it.
Value argsort(Value x, int axis, bool descending = false);
// The k largest elements along `axis`, the largest first, equal ones as they were, and their i32 positions: shapes of x with k in place of
// the axis's extent. The derivative goes with the elements. One pass over x and k over about 2 sqrt(n) numbers, or a sort where that is less.
std::pair<Value, Value> top_k(Value x, std::int64_t k, int axis = -1);
// What lies at the levels q, between 0 and 1, of the sorted elements along `axis`, on a straight line between neighbours: element q (n - 1),
// counted from 0. q: a scalar, or a vector whose axis is the first of the result; x without the axis. NaN where there is one.
// Derivatives by x and by q. f32 and f64.
Value quantile(Value x, Value q, int axis);
Value median(Value x, int axis);
// For each of `values`, an array of any shape, how many elements of the ascending vector `sorted`, of the same dtype, come before it;
// with `right`, how many are not after it. i32, by bisection.
Value searchsorted(Value sorted, Value values, bool right = false);
// out[..., i, ...] = x[..., indices[..., i, ...], ...]: integer indices of x's shape but for `axis`, clamped into range.
Value take_along_axis(Value x, Value indices, int axis);

}  // namespace hotloop
