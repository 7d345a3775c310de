// Bound factors of dots (transforms/factor_layout.h): how they are to lie for a target, where a dot finds them, and the statements that undo the layout for
// readers that take none.
#pragma once

#include <cstdint>
#include <optional>

#include "schedule/context.h"
#include "transforms/bind_inputs.h"

namespace hotloop {

// The layout of the right-hand side of a dot. `rounds`: whether dots of f32 round their factors to bfloat16.
ir::FactorLayout bound_layout(const kernel::Target& target, const ir::BoundFactor& factor, bool rounds);

// Where the right-hand side of a dot lies if that is an input of the program in the layout that the dot reads.
struct PlacedFactor {
  Storage storage;     // its strides are those within a panel; in blocks those of a DotFactor
  std::int64_t panel;  // columns
  bool in_pairs;
};
std::optional<PlacedFactor> bound_factor(LoweringContext& context, const Node& dot);

// Binds input `number` of the program, which lies in this layout, and a buffer for the plain matrix, which readers other than dots find.
void bind_laid_out(LoweringContext& context, Value input, int number, const ir::FactorLayout& layout);

// Puts in front of the program what fills those of these buffers that it reads.
void fill_plain_factors(LoweringContext& context);

}  // namespace hotloop
