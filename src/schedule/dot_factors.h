// Factors of dots laid out anew: copied, so that what is read again and again lies side by side; in bfloat16 (CompileOptions::dot_precision)
// rounded, and in pairs.
#pragma once

#include <vector>

#include "schedule/context.h"

namespace hotloop {

// Whether the factors of this dot are rounded to bfloat16.
bool rounds_factors(const Node& dot);

// Pairs of so many numbers: half of them, rounded up, in blocks to whole ones.
std::int64_t half_of(std::int64_t extent, bool in_blocks);

// Appends instructions that round the f32 in a register to the nearest bfloat16; gives the register of the result, an f32.
int append_rounded(std::vector<kernel::Instr>& instrs, int value);

// The same of one number of the pair in a register, the upper or the lower one: an f32.
int append_number_of_pair(std::vector<kernel::Instr>& instrs, int pair, bool upper);

// A factor of a Dot laid out anew: where it lies.
struct DotFactor {
  // Each axis stays an axis; along the one that is halved, element k holds numbers k (upper half) and k + `half` of the factor, 0 beyond its end.
  Storage storage;
  std::int64_t half = 0;
  // For dots in blocks it lies as kernel::Dot has it, in panels along this axis, whose stride is right for whole panels; strides along contracted axes
  // mean nothing. -1: all of it is one row, or one column.
  int panel_axis = -1;
};

// Which of several axes of rows, or of columns, is cut into panels: one whose number is not known or the last one, unless it is short.
std::size_t axis_of_panels(const std::vector<kernel::Extent>& axes);

// The statements that fill `made`, a buffer of `dtype` (u32 for pairs, else f32), from the factor v at `source`.
kernel::Block lay_out_factor(LoweringContext& context, Value v, const Storage& source, const Halving& halving,
                             const DotFactor& made);

// Where the factor is to lie: axes in the order in which they lie at `source`, and nothing along those it is repeated over; or as dots in blocks want it.
DotFactor place_of_factor(LoweringContext& context, Value v, const Storage& source, const Halving& halving,
                          kernel::Space space);

// How many vectors of a factor are read: `per_vector` times each, along an axis that lies with `stride`.
struct FactorReads {
  DType dtype;
  std::int64_t stride = 1;
  bool turned = false;  // squares of it are turned in registers, where another axis lies side by side
  double times = 1;
};
// Whether so many reads take longer than copying what is read, in the order of `axes`, and reading that.
bool pays_to_copy(const FactorReads& reads, const std::vector<CopiedAxis>& axes);

// Whether columns of so many bytes that so many tiles read are packed first, which also costs the memory that the pack takes: not beyond `far_bytes`, see
// Target, but where they lie apart.
bool pays_to_pack(const FactorReads& reads, double tiles, std::int64_t bytes, std::int64_t far_bytes);

// The statement that copies a factor into `buffer`, in the order of `axes`.
kernel::Map copy_factor(LoweringContext& context, const kernel::Access& source, const std::vector<CopiedAxis>& axes,
                        int buffer);

}  // namespace hotloop
