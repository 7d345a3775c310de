// bfloat16: the upper half of an f32, with 8 significant bits.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "hotloop/array.h"

namespace hotloop {

// The nearest f32 whose lower half is zero; halfway, the one whose last bit is even.
inline float rounded_to_bf16(float x) {
  if (x != x) return std::numeric_limits<float>::quiet_NaN();
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

inline Array rounded_to_bf16(const Array& x) {
  Array result(x.dtype(), x.shape());
  const auto* from = static_cast<const float*>(x.raw());
  auto* to = static_cast<float*>(result.raw());
  for (std::int64_t i = 0; i < x.size(); ++i) to[i] = rounded_to_bf16(from[i]);
  return result;
}

}  // namespace hotloop
