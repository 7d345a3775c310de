// Lines of 80 columns, for explain() and profile().
#pragma once

#include <string>

namespace hotloop::runtime {

inline constexpr std::size_t columns = 80;

// With a prefix of the unit: "1.43 Gflop", "12.5 kB" by steps of 1024.
std::string scaled(double value, const char* unit, double step = 1000);
// "3.14 ms", "42 us".
std::string fixed(double value, const char* unit);
// "label      text", wrapped at blanks, words longer than a line behind a +; what follows stands under the text. `indent`: where that begins, before the last column.
void append_line(std::string& out, const std::string& label, const std::string& text, std::size_t indent = 12);

}  // namespace hotloop::runtime
