#include "hotloop/init.h"

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "core/hash.h"
#include "core/philox.h"
#include "hotloop/error.h"
#include "nn/torch_generator.h"

namespace hotloop::nn {
namespace {

using Words = std::array<std::uint32_t, 4>;

Words draw(std::uint64_t seed, std::int64_t index) {
  const auto i = static_cast<std::uint64_t>(index);
  return philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

// In [0, 1), a multiple of 2^-53.
double unit(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

double normal_element(std::uint64_t seed, std::int64_t index) {
  const Words w = draw(seed, index);
  return std::sqrt(-2 * std::log1p(-unit(w[0], w[1]))) * std::cos(2 * std::numbers::pi * unit(w[2], w[3]));
}

}  // namespace

std::uint64_t fold_in(std::uint64_t seed, std::string_view name) {
  const std::uint64_t hash = fnv1a(name);
  const Words w = philox4x32({static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32), 0, 1},
                             {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return std::uint64_t{w[1]} << 32 | w[0];
}

std::string_view name_of(Generator generator) { return generator == Generator::Torch ? "torch" : "philox"; }

Generator generator_from_name(std::string_view name) {
  for (Generator generator : {Generator::Philox, Generator::Torch})
    if (name == name_of(generator)) return generator;
  throw UserError("generator", "must be philox or torch", std::string(name),
                  "torch for the numbers that PyTorch draws from a seed, else philox");
}

Seed Seed::started() const {
  Seed out = *this;
  if (generator_ == Generator::Torch && !stream_) out.stream_ = std::make_shared<TorchGenerator>(value_);
  return out;
}

Seed fold_in(const Seed& seed, std::string_view name) {
  Seed out = seed.started();
  out.value_ = fold_in(seed.value_, name);
  return out;
}

Array uniform(const Seed& seed, const Shape& shape, DType dtype, double low, double high) {
  if (const Seed torch = seed.started(); torch.stream()) return torch.stream()->uniform(shape, dtype, low, high);
  Array out(dtype, shape);
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const Words w = draw(seed.value(), i);
    out.set(i, low + (high - low) * unit(w[0], w[1]));
  }
  return out;
}

Array normal(const Seed& seed, const Shape& shape, DType dtype, double stddev) {
  if (const Seed torch = seed.started(); torch.stream()) return torch.stream()->normal(shape, dtype, stddev);
  Array out(dtype, shape);
  for (std::int64_t i = 0; i < out.size(); ++i) out.set(i, stddev * normal_element(seed.value(), i));
  return out;
}

Array glorot_uniform(const Seed& seed, const Shape& shape, DType dtype) {
  if (shape.rank() != 2) throw UserError("glorot_uniform", "the weight must be a matrix (out, in)", shape.str());
  const double limit = std::sqrt(6.0 / static_cast<double>(shape[0] + shape[1]));
  return uniform(seed, shape, dtype, -limit, limit);
}

}  // namespace hotloop::nn
