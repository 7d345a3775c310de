// Hashes of bytes, the same on every machine and in every process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hotloop {

// FNV-1a, whose definition names this start.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t start = 0xcbf29ce484222325) {
  std::uint64_t hash = start;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// 128 bits as 32 hexadecimal digits, for what would otherwise be compared whole. Not for defence against forgery.
std::string hash128(std::string_view bytes);

}  // namespace hotloop
