// Random operands for the property tests.
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace hotloop::ir {

// Uniform in [low, high]; integers take whole numbers, bool is a fair coin.
Array random_array(Rng& rng, DType dtype, const Shape& shape, double low = -2, double high = 2);
// Uniform magnitude in [low, high], random sign: clear of a kink at zero.
Array random_signed(Rng& rng, DType dtype, const Shape& shape, double low = 0.3, double high = 2);

// Rank 0, extent 1, odd extents, an inner extent of 1.
const std::vector<Shape>& sample_shapes();

// One sample for each of sample_shapes(), `num_operands` operands in [low, high].
std::vector<Sample> uniform_samples(Rng& rng, DType dtype, int num_operands, double low = -2, double high = 2);

// The same of one operand clear of 0, and integers.
std::vector<Sample> signed_samples(Rng& rng, DType dtype);

}  // namespace hotloop::ir
