// Memory of calls that is large enough for pages of 2 MB.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace hotloop::runtime {

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;

// A page of 2 MB takes one entry of the processor's tables of pages where pages of 4 KB take 512: a tape that is written forwards and
// read by columns has more of these than the tables hold.
inline constexpr std::size_t large_page_bytes = std::size_t{2} << 20;

// Aligned to `alignment`. From two large pages on it begins with one, and the system is asked for these where it has them: it may
// refuse, and nothing but speed depends on it. Throws std::bad_alloc.
Memory take_memory(std::size_t bytes, std::size_t alignment);

}  // namespace hotloop::runtime
