#include "core/hash.h"

namespace hotloop {
namespace {

// The finaliser of MurmurHash3.
std::uint64_t mixed(std::uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
  return hash ^ (hash >> 33);
}

}  // namespace

std::string hash128(std::string_view bytes) {
  // Side by side: each waits for its last product.
  std::uint64_t a = fnv1a_start, b = 0x9e3779b97f4a7c15;
  for (const char c : bytes) {
    a = fnv1a_step(a, c);
    b = fnv1a_step(b, c);
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const std::uint64_t hash : {mixed(a), mixed(b)}) {
    for (int shift = 60; shift >= 0; shift -= 4) hex += digits[(hash >> shift) & 15];
  }
  return hex;
}

}  // namespace hotloop
