// The machine's memory.
#pragma once

#include <cstdint>
#include <string>

namespace hotloop {

std::int64_t physical_memory_bytes();
std::string bytes_text(double bytes);  // "1.6 GB", "16 MB", "400 bytes": powers of ten

}  // namespace hotloop
