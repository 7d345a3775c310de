// Nearest names, for error messages about unknown ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hotloop {

// Levenshtein distance.
int edit_distance(std::string_view a, std::string_view b);
// "did you mean 'x'?" for a close name, else the list of all names.
std::string nearest_hint(std::string_view name, const std::vector<std::string>& names);

}  // namespace hotloop
