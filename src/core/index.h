// Axes, extents and places are signed numbers; the standard library's containers are indexed by unsigned ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotloop {

constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace hotloop
