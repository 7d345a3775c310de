#include "data/separator.h"

#include <algorithm>
#include <cstddef>

namespace hotloop::data {

std::optional<char> other_separator(std::string_view text, char used) {
  const std::string_view header = text.substr(0, text.find('\n'));
  char best = used;
  std::ptrdiff_t most = std::ranges::count(header, used);
  for (const char candidate : {',', ';', '\t', '|'})
    if (const auto count = std::ranges::count(header, candidate); candidate != used && count > most) {
      best = candidate;
      most = count;
    }
  return best != used ? std::optional(best) : std::nullopt;
}

}  // namespace hotloop::data
