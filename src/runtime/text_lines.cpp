#include "runtime/text_lines.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace hotloop::runtime {

std::string scaled(double value, const char* unit, double step) {
  static constexpr std::array<const char*, 5> prefixes = {"", "k", "M", "G", "T"};
  std::size_t p = 0;
  while (value >= step && p + 1 < prefixes.size()) {
    value /= step;
    ++p;
  }
  char text[64];
  std::snprintf(text, sizeof text, p == 0 ? "%.0f %s%s" : "%.3g %s%s", value, prefixes[p], unit);
  return text;
}

std::string fixed(double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f %s" : "%.0f %s", value, unit);
  return text;
}

void append_line(std::string& out, const std::string& label, const std::string& text, std::size_t indent) {
  std::string line = label;
  line.resize(std::max(indent, label.size() + 1), ' ');
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find(' ', begin);
    if (end == std::string::npos) end = text.size();
    std::string word = text.substr(begin, end - begin);
    const auto next_line = [&] {
      out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line.assign(indent, ' ');
    };
    if (line.size() + word.size() > columns && line.find_first_not_of(' ') != std::string::npos) next_line();
    while (line.size() + word.size() > columns) {  // longer than a line: many operations with a + between them
      const std::size_t room = columns - line.size(), last = word.rfind('+', room - 1);
      const std::size_t cut = last == std::string::npos ? room : last + 1;
      line += word.substr(0, cut);
      word.erase(0, cut);
      next_line();
    }
    line += word + " ";
    begin = end + 1;
  }
  out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace hotloop::runtime
