#include "core/nearest.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace hotloop {

int edit_distance(std::string_view a, std::string_view b) {
  // Of the first i characters of a and the first j of b, for i - 2, i - 1 and i.
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

namespace {

// "LSTM", "LayerNorm" and "layer-norm" as "lstm" and "layernorm".
std::string folded(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != '_' && c != '-') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

// Where one name begins the other, as "train" does "training".
bool begins(std::string_view a, std::string_view b) {
  constexpr std::size_t least = 4;  // letters that say enough
  return std::min(a.size(), b.size()) >= least && (a.starts_with(b) || b.starts_with(a));
}

}  // namespace

const std::string* nearest_name(std::string_view name, const std::vector<std::string>& names) {
  if (names.empty()) return nullptr;
  const std::string letters = folded(name);
  const auto distance = [&](const std::string& n) {
    return std::pair(edit_distance(letters, folded(n)), edit_distance(name, n));
  };
  const auto best = std::ranges::min_element(names, {}, distance);
  if (distance(*best).first <= std::max<int>(2, static_cast<int>(name.size()) / 3)) return &*best;
  const auto longer = std::ranges::find_if(names, [&](const std::string& n) { return begins(name, n); });
  return longer != names.end() ? &*longer : nullptr;
}

std::string nearest_hint(std::string_view name, const std::vector<std::string>& names) {
  if (names.empty()) return "there are none";
  const std::string* const near = nearest_name(name, names);
  return near != nullptr ? "did you mean '" + *near + "'?" : list_hint(names);
}

std::string list_hint(const std::vector<std::string>& names) {
  std::string list = "one of ";
  for (std::size_t i = 0; i < names.size(); ++i) list += (i ? ", " : "") + names[i];
  return list;
}

}  // namespace hotloop
