// JSON of files that may be damaged, and how messages show it.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "core/utf8.h"

namespace hotloop::io {

// The library parses without recursion, but copies, compares and prints with it: a small file of brackets alone would take more stack than there is.
inline constexpr int most_json_levels = 100;

class NestedTooDeep final : public nlohmann::json::exception {
 public:
  NestedTooDeep() : exception(0, ("more than " + std::to_string(most_json_levels) + " levels of nesting").c_str()) {}
};

inline bool is_nested_too_deep(std::string_view json) {
  int level = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if (c == '[' || c == '{') ++level;
    if (c == ']' || c == '}') --level;
    if (level > most_json_levels) return true;
  }
  return false;
}

// nlohmann::json::exception for what is no JSON and for what is nested too deep. `watch`: as Json::parse takes it.
template <class Json, class... Watch> Json parse_json(std::string_view text, Watch&&... watch) {
  if (is_nested_too_deep(text)) throw NestedTooDeep();
  return Json::parse(text, std::forward<Watch>(watch)...);
}

// The value as a message shows it: on one line, cut if it is long.
template <class Json> std::string shown_json(const Json& json) {
  constexpr std::size_t most = 60;
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= most) return text;
  std::size_t end = 0;  // not within a character
  while (end < most) end += std::max<std::size_t>(utf8_sequence(std::string_view(text).substr(end)), 1);
  return text.substr(0, end) + "...";
}

}  // namespace hotloop::io
