// Philox: counter-based random generators (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace hotloop {

inline constexpr std::uint32_t philox2x32_factor = 0xD256D193, philox_weyl = 0x9E3779B9;
inline constexpr int philox_rounds = 10;

// Philox2x32-10: two random words, a pure function of counter and key; for each key a permutation of the counters.
constexpr std::array<std::uint32_t, 2> philox2x32(std::array<std::uint32_t, 2> counter, std::uint32_t key) {
  for (int round = 0; round < philox_rounds; ++round) {
    const std::uint64_t product = std::uint64_t{philox2x32_factor} * counter[0];
    counter = {static_cast<std::uint32_t>(product >> 32) ^ key ^ counter[1], static_cast<std::uint32_t>(product)};
    key += philox_weyl;
  }
  return counter;
}

// Word i of the stream of a key of 64 bits: word i % 2 at the counter (i / 2, the second key word), with the first one as the key.
constexpr std::uint32_t random_word(std::uint32_t i, std::uint32_t key0, std::uint32_t key1) {
  return philox2x32({i / 2, key1}, key0)[i % 2];
}

// Philox4x32-10: four words.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < philox_rounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0], b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += philox_weyl;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The reference implementation's known answers (Random123, kat_vectors).
static_assert(philox2x32({0, 0}, 0) == std::array<std::uint32_t, 2>{0xff1dae59, 0x6cd10df2});
static_assert(philox2x32({0xffffffff, 0xffffffff}, 0xffffffff) == std::array<std::uint32_t, 2>{0x2c3f628b, 0xab4fd7ad});
static_assert(philox2x32({0x243f6a88, 0x85a308d3}, 0x13198a2e) == std::array<std::uint32_t, 2>{0xdd7ce038, 0xf62a4c12});
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) ==
              std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

}  // namespace hotloop
