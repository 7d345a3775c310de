#pragma once

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// The gradient of a gain, a shift, a peephole is added up row by row over the steps of a loop, and the rows of the tile are summed after it
// (passes/defer_products). Where a Map in the loop goes over rows of whole vectors, it sums its rows at once, column by column, so that the sum waits in
// registers and memory is read and written once for all rows, not once for each:
//
//   for t: map (i < rows, j < n):  a[i n + j] += v        for t: map (j < n, reduce i < rows):  a[j] += sum of v
//   map (j < n, reduce i < rows):  use(sum of a[i n + j])      map (j < n):                     use(a[j])
//
// The order, steps first and rows within each, depends on the parts of a tile alone, as it did. Inside of grids on processors; the threads of a block share the
// points of a Map, and would be left with fewer. Before the memory plan.
void sum_rows_in_loops(Program& program);

}  // namespace hotloop::kernel
