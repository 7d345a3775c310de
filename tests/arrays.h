// Arrays for tests: random ones, and whether two are the same to the bit.
#pragma once

#include <cstring>
#include <random>

#include "hotloop/array.h"

namespace hotloop::testing {

// Of the standard normal distribution.
inline Array normal_array(const Shape& shape, DType dtype, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Array a(dtype, shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, normal(generator));
  return a;
}

inline bool same_bits(const Array& a, const Array& b) {
  return a.type() == b.type() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace hotloop::testing
