// Initial values of parameters.
//
// Random numbers are a pure function of (seed, element index): Philox4x32-10 (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011), run on the host, with the 64-bit seed as its key and the element's index as its counter. One
// draw is 53 bits in double precision, rounded once to the dtype, so that f32 parameters are the rounded f64 ones. A
// parameter's seed is the model's seed folded with each name on the way to it; so parameters are independent of one another,
// and adding a layer changes no other layer's values. Or they are PyTorch's, drawn in its order: see Generator.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "hotloop/array.h"

namespace hotloop::nn {

// Whose defaults init() follows.
//   Torch (default): weights and biases uniform in +-1/sqrt(fan in), of recurrent layers in +-1/sqrt(hidden).
//   Keras: weights Glorot uniform, recurrent weights orthogonal, biases 0 and the LSTM's forget bias 1; recurrent layers
//   have one bias (no bias_hh) except the GRU with reset_after.
enum class Init { Torch, Keras };

// Which generator draws the numbers of a seed.
//   Philox (default): as above.
//   Torch: PyTorch's, the Mersenne Twister (Matsumoto and Nishimura 1998) as torch.manual_seed(seed) starts it, one stream from
//   which layers draw one after another. A model of the layers that a PyTorch program makes in the same order then begins
//   with the same parameters: f32 uniform ones to the bit, f64 ones to the last bit, normal ones to about 1e-7.
enum class Generator { Philox, Torch };

// "philox", "torch".
std::string_view name_of(Generator generator);
// UserError for any other name.
Generator generator_from_name(std::string_view name);

class TorchGenerator;

// Where the numbers of init() come from. A plain integer is a seed of Philox.
class Seed {
 public:
  Seed(std::uint64_t value, Generator generator = Generator::Philox) : value_(value), generator_(generator) {}

  std::uint64_t value() const { return value_; }
  Generator generator() const { return generator_; }

  // This seed with the beginning of a Torch stream, which all that are folded from it draw from in turn; a seed that has one,
  // and one of Philox, as it is. Layer::init() calls it: what a layer is given has a stream.
  Seed started() const;
  // The stream; null without.
  TorchGenerator* stream() const { return stream_.get(); }

 private:
  friend Seed fold_in(const Seed& seed, std::string_view name);
  std::uint64_t value_;
  Generator generator_;
  std::shared_ptr<TorchGenerator> stream_ = nullptr;
};

// The seed of what is called `name` inside what has `seed`.
std::uint64_t fold_in(std::uint64_t seed, std::string_view name);
Seed fold_in(const Seed& seed, std::string_view name);

// Uniform in [low, high), independent elements.
Array uniform(const Seed& seed, const Shape& shape, DType dtype, double low, double high);
// Normal with mean 0 (Box-Muller transform), independent elements.
Array normal(const Seed& seed, const Shape& shape, DType dtype, double stddev = 1);
// Glorot uniform (Glorot and Bengio 2010) for a weight of shape (out, in): +-sqrt(6 / (in + out)).
Array glorot_uniform(const Seed& seed, const Shape& shape, DType dtype);
// Matrix of shape (m, n) with orthonormal columns (m >= n) or rows (m < n), uniformly distributed: the Q of a normal matrix's
// QR decomposition with R's diagonal positive (Saxe et al. 2014, Mezzadri 2007).
Array orthogonal(const Seed& seed, const Shape& shape, DType dtype);

}  // namespace hotloop::nn
