// UTF-8: whether a text is, and how any bytes are shown in a message.
#pragma once

#include <string>
#include <string_view>

namespace hotloop {

// Length of the UTF-8 sequence at the front of `s` (RFC 3629: no overlong forms, no surrogates), 0 if there is none.
inline std::size_t utf8_sequence(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto tail = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (s.empty()) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF)
    return tail(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && tail(2) ? 3 : 0;
  if (first >= 0xF0 && first <= 0xF4)
    return tail(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && tail(2) && tail(3) ? 4 : 0;
  return 0;
}

inline bool valid_utf8(std::string_view s) {
  while (!s.empty()) {
    const std::size_t length = utf8_sequence(s);
    if (length == 0) return false;
    s.remove_prefix(length);
  }
  return true;
}

// Code points of valid UTF-8.
inline std::size_t num_characters(std::string_view s) {
  std::size_t count = 0;
  for (const char c : s) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

// The text with control characters and bytes that are no UTF-8 as \xNN.
inline std::string printable(std::string_view s) {
  constexpr const char* digits = "0123456789ABCDEF";
  std::string out;
  while (!s.empty()) {
    const std::size_t length = utf8_sequence(s);
    const auto first = static_cast<unsigned char>(s[0]);
    if (length == 0 || first < 0x20 || first == 0x7F) {
      out += {'\\', 'x', digits[first >> 4], digits[first & 15]};
      s.remove_prefix(1);
    } else {
      out += s.substr(0, length);
      s.remove_prefix(length);
    }
  }
  return out;
}

// The text in quotes, cut if it is long.
inline std::string shown(std::string_view text) {
  return "'" + printable(text.substr(0, 40)) + (text.size() > 40 ? "..." : "") + "'";
}

}  // namespace hotloop
