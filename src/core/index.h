// Axes, extents and places are signed numbers; the standard library's containers are indexed by unsigned ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotloop {

constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The number of parts of `by` that n takes, the last of which may be smaller.
constexpr std::int64_t divided_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

}  // namespace hotloop
