#include <numeric>
#include <utility>

#include "core/philox.h"
#include "hotloop/fit.h"

namespace hotloop::train {

std::vector<std::int64_t> shuffled(std::int64_t n, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  for (std::uint64_t i = order.size(); i-- > 1;) {
    const auto words = philox4x32({low(i), high(i), low(epoch), high(epoch)}, {low(seed), high(seed)});
    // The high half of 64 random bits times i + 1 is uniform in 0..i, but for one part in 2^64 / n.
    const auto random = static_cast<unsigned __int128>(static_cast<std::uint64_t>(words[1]) << 32 | words[0]);
    std::swap(order[i], order[static_cast<std::size_t>(random * (i + 1) >> 64)]);
  }
  return order;
}

}  // namespace hotloop::train
