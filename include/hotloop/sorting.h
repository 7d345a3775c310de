// Sorting and searching. A NaN counts as the largest number. Shapes are static, so nothing here depends on values for its shape.
#pragma once

#include "hotloop/graph.h"

namespace hotloop {

// x with its elements along `axis` in order, equal ones as they were; largest first if `descending`. The derivative goes with the
// elements. A sorting network: about n log2(n)^2 / 2 comparisons, in one loop of small body.
Value sort(Value x, int axis, bool descending = false);
// The i32 positions that do it.
Value argsort(Value x, int axis, bool descending = false);
// For each of `values`, an array of any shape, how many elements of the ascending vector `sorted`, of the same dtype, come before it;
// with `right`, how many are not after it. i32, by bisection.
Value searchsorted(Value sorted, Value values, bool right = false);
// out[..., i, ...] = x[..., indices[..., i, ...], ...]: integer indices of x's shape but for `axis`, clamped into range.
Value take_along_axis(Value x, Value indices, int axis);

}  // namespace hotloop
