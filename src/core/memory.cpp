#include "core/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "hotloop/error.h"

namespace hotloop {

std::int64_t physical_memory_bytes() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 5; ++unit) bytes /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.3g %s", bytes, units[unit]);
  return text;
}

double total_bytes(std::span<const ValueType> types) {
  double bytes = 0;
  for (const ValueType& t : types) bytes += static_cast<double>(t.shape.size()) * static_cast<double>(size_of(t.dtype));
  return bytes;
}

void check_num_elements(std::string_view where, const ValueType& type) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : type.shape.dims()) {
    if (extent == 0) continue;
    if (extent > most_elements / elements) {
      const auto dims = type.shape.dims();
      const bool is_empty = std::ranges::find(dims, 0) != dims.end();
      throw UserError(
          std::string(where),
          std::string("an array must have at most 2^59 elements") + (is_empty ? ", an extent of 0 left out" : ""),
          type.str());
    }
    elements *= extent;
  }
}

}  // namespace hotloop
