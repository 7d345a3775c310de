#include "core/nearest.h"

#include <algorithm>
#include <numeric>

namespace hotloop {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string nearest_hint(std::string_view name, const std::vector<std::string>& names) {
  if (names.empty()) return "there are none";
  const auto best = std::ranges::min_element(names, {}, [&](const std::string& n) { return edit_distance(name, n); });
  if (edit_distance(name, *best) <= std::max<int>(2, static_cast<int>(name.size()) / 3))
    return "did you mean '" + *best + "'?";
  std::string list = "one of ";
  for (std::size_t i = 0; i < names.size(); ++i) list += (i ? ", " : "") + names[i];
  return list;
}

}  // namespace hotloop
