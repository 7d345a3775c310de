#include "runtime/large_memory.h"

#include <sys/mman.h>

#include <new>

namespace hotloop::runtime {

Memory take_memory(std::size_t bytes, std::size_t alignment) {
  const bool is_large = bytes >= 2 * large_page_bytes;
  const std::size_t unit = is_large ? large_page_bytes : alignment;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)));
  if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  // Not the last page, of which little may be in use.
  if (is_large) madvise(memory.get(), bytes / large_page_bytes * large_page_bytes, MADV_HUGEPAGE);
#endif
  return memory;
}

}  // namespace hotloop::runtime
