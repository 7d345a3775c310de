// Factors of dots laid out anew: copied, so that what is read again and again lies side by side; in bfloat16 (CompileOptions::dot_precision)
// rounded, and in pairs.
#pragma once

#include <vector>

#include "schedule/context.h"

namespace hotloop {

// Whether the factors of this dot are rounded to bfloat16.
bool rounds_factors(const Node& dot);

// Appends instructions that round the f32 in a register to the nearest bfloat16; gives the register of the result, an f32.
int append_rounded(std::vector<kernel::Instr>& instrs, int value);

// A factor of a Dot laid out anew: as pairs (see kernel::Dot), or only rounded.
struct DotFactor {
  // Each axis stays an axis; along the one that is halved, element k holds numbers k (upper half) and k + `half` of the factor, 0 beyond its end.
  Storage storage;
  std::int64_t half = 0;
};

// The statement that fills `made`, a buffer of `dtype` (u32 for pairs, else f32), from the factor v at `source`. `halved`: the axis, or -1.
kernel::Map lay_out_factor(LoweringContext& context, Value v, const Storage& source, int halved, const DotFactor& made);

// Where the factor is to lie: axes in the order in which they lie at `source`, and nothing along those it is repeated over.
DotFactor place_of_factor(LoweringContext& context, Value v, const Storage& source, int halved, kernel::Space space);

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
