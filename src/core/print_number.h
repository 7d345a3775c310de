#pragma once

#include <charconv>
#include <string>

namespace hotloop {

// The shortest text that reads back as the same double.
inline std::string print_number(double value) {
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

}  // namespace hotloop
