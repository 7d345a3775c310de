// Initial values of parameters.
//
// All random numbers are a pure function of (seed, element index): Philox4x32-10 (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011), run on the host, with the 64-bit seed as its key and the element's index as its counter. One
// draw is 53 bits in double precision, rounded once to the dtype, so that f32 parameters are the rounded f64 ones. A
// parameter's seed is the model's seed folded with each name on the way to it; so parameters are independent of one another,
// and adding a layer changes no other layer's values.
#pragma once

#include <cstdint>
#include <string_view>

#include "hotloop/array.h"

namespace hotloop::nn {

// Whose defaults init() follows.
//   Torch (default): weights and biases uniform in +-1/sqrt(fan in), of recurrent layers in +-1/sqrt(hidden).
//   Keras: weights Glorot uniform, recurrent weights orthogonal, biases 0 and the LSTM's forget bias 1; recurrent layers
//   have one bias (no bias_hh) except the GRU with reset_after.
enum class Init { Torch, Keras };

// The seed of what is called `name` inside what has `seed`.
std::uint64_t fold_in(std::uint64_t seed, std::string_view name);

// Uniform in [low, high), independent elements.
Array uniform(std::uint64_t seed, const Shape& shape, DType dtype, double low, double high);
// Normal with mean 0 (Box-Muller transform), independent elements.
Array normal(std::uint64_t seed, const Shape& shape, DType dtype, double stddev = 1);
// Glorot uniform (Glorot and Bengio 2010) for a weight of shape (out, in): +-sqrt(6 / (in + out)).
Array glorot_uniform(std::uint64_t seed, const Shape& shape, DType dtype);
// Matrix of shape (m, n) with orthonormal columns (m >= n) or rows (m < n), uniformly distributed: the Q of a normal matrix's
// QR decomposition with R's diagonal positive (Saxe et al. 2014, Mezzadri 2007).
Array orthogonal(std::uint64_t seed, const Shape& shape, DType dtype);

}  // namespace hotloop::nn
