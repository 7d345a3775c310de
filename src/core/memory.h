// The machine's memory.
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "hotloop/array.h"

namespace hotloop {

std::int64_t physical_memory_bytes();
std::string bytes_text(double bytes);  // "1.6 GB", "16 MB", "400 bytes": powers of ten
double total_bytes(std::span<const ValueType> types);

// An array has no more, so that its bytes, and those of a few like it, can be counted.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 59;
// UserError of `where` if `type` has more. An extent of 0 is left out, so that strides can be counted as well.
void check_num_elements(std::string_view where, const ValueType& type);

// An array for which there is no memory.
class OutOfMemory : public std::bad_alloc {
 public:
  OutOfMemory(const std::string& type, double bytes)
      : array_(type + ", " + bytes_text(bytes)), text_("no memory for an array " + type + ", " + bytes_text(bytes)) {}
  const char* what() const noexcept override { return text_.what(); }
  const char* array() const noexcept { return array_.what(); }  // "f32[2,3], 24 bytes"

 private:
  std::runtime_error array_, text_;  // texts whose copies cannot throw
};

}  // namespace hotloop
