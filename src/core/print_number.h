// Numbers as texts, whatever the locale.
#pragma once

#include <charconv>
#include <cmath>
#include <string>

namespace hotloop {

// The shortest text that reads back as the same number of its type.
template <class T> std::string print_number(T value) {
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

// To so many significant digits, as printf's %g.
inline std::string print_digits(double value, int digits) {
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, digits).ptr};
}

// A finite number as a literal of C and C++ that is the same number: 0x1.8p+1.
inline std::string print_hex(double value) {
  char buffer[40];
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, std::fabs(value), std::chars_format::hex).ptr;
  return (std::signbit(value) ? "-0x" : "0x") + std::string(static_cast<const char*>(buffer), end);
}

}  // namespace hotloop
