// Numbers that say how a factor is rounded to bfloat16, with what it becomes in a product with 1.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace hotloop::testing {

struct Bf16Rounding {
  float given, rounded;
  void expect(double got) const {
    if (std::isnan(rounded))
      EXPECT_TRUE(std::isnan(got)) << given;
    else
      EXPECT_EQ(got, rounded) << given;
  }
};

// Halfway to an odd and to an even last bit, just above and below, the greatest number, a NaN whose upper half says infinity.
inline std::vector<Bf16Rounding> bf16_roundings() {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto of = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  return {{of(0x3f818000), of(0x3f820000)},
          {of(0x3f808000), of(0x3f800000)},
          {of(0x3f808001), of(0x3f810000)},
          {of(0x3f807fff), of(0x3f800000)},
          {-0.0f, 0.0f},
          {inf, inf},
          {-inf, -inf},
          {nan, nan},
          {of(0x7f7fffff), inf},
          {of(0x7f800001), nan},
          {-1.00390625f, -1.0f},
          {3.0f, 3.0f}};
}

}  // namespace hotloop::testing
