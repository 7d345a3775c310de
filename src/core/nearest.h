// Nearest names, for error messages about unknown ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hotloop {

// Letters put in, left out or replaced, and neighbours swapped, no letter twice (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);
// A close name, or one that begins or continues it; null if there is none.
const std::string* nearest_name(std::string_view name, const std::vector<std::string>& names);
// "did you mean 'x'?" for such a name, else the list of all names.
std::string nearest_hint(std::string_view name, const std::vector<std::string>& names);
// "one of a, b, c".
std::string list_hint(const std::vector<std::string>& names);

}  // namespace hotloop
