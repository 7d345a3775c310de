#pragma once

#include <charconv>
#include <string>

namespace hotloop {

// The shortest text that reads back as the same number of its type.
template <class T> std::string print_number(T value) {
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

}  // namespace hotloop
