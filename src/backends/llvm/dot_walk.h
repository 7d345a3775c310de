// In which order, and how much at a time, a Dot walks over its B. None of it changes a result.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/column_walk.h"
#include "schedule/kernel_ir.h"

namespace hotloop::codegen {

// Lanes of the narrowest vector that is as fast as a narrower one would be, or of a whole one, for so many numbers.
int lanes_for_few(DType dtype, std::int64_t count);

// Lanes of the vectors along n: few columns fill no vector, and registers of 16 or 32 bytes are multiplied as fast or faster. But as wide as the
// Maps' where values are held in registers between statements, and whole where columns lie apart, which are turned by whole vectors.
int lanes_for_columns(const kernel::Dot& dot, bool holds_values);

// Long enough on its own that a cancelled call must not wait for its end: some 10 ms of a slow core. Others end soon, and polling
// loops stand around them.
bool is_long(const kernel::Dot& dot);

// Steps along k that are evenly spaced in both operands become one dim.
std::vector<kernel::KDim> collapsed(const kernel::DotSegment& segment);

// Whether there are steps, of a number known when the code is made. Others may be none.
bool has_static_steps(const std::vector<kernel::KDim>& k);

// C' = A' B' computes the same sums; rows and columns change places. Worth it when A, not B, is contiguous.
bool better_transposed(const kernel::Dot& dot);
kernel::Dot transposed(const kernel::Dot& dot);

// The columns of B in the order in which the Dot reads them: kernel::column_walk(), but of columns that lie apart and are turned in squares one vector after
// another. A square is all that the registers hold, and takes lines from as many places at once as it has columns.
kernel::ColumnWalk walk_of(const kernel::Target& target, const kernel::Dot& dot, bool in_loop);

// How many steps of k the body of a loop has, for a tile of so many accumulators whose B moves on by b_step bytes a step.
std::int64_t steps_in_body(const kernel::Extent& extent, std::int64_t accumulators, std::int64_t b_step);

}  // namespace hotloop::codegen
