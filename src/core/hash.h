// Hashes of bytes, the same on every machine and in every process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hotloop {

inline constexpr std::uint64_t fnv1a_start = 0xcbf29ce484222325;
constexpr std::uint64_t fnv1a_step(std::uint64_t hash, char c) {
  return (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
}
constexpr std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = fnv1a_start;
  for (const char c : bytes) hash = fnv1a_step(hash, c);
  return hash;
}

// 128 bits as 32 hexadecimal digits, for what would otherwise be compared whole. Not for defence against forgery.
std::string hash128(std::string_view bytes);

}  // namespace hotloop
