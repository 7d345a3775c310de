// How memory of the library's own goes back, which tells it from memory that an Array wraps for somebody else.
#pragma once

#include <cstdlib>
#include <memory>

namespace hotloop {

struct OwnMemory {
  bool is_pooled = false;  // then the shared pointer's control block gives it back
  void operator()(void* p) const noexcept {
    if (!is_pooled) std::free(p);
  }
};

// Whether the library allocated it, so that nobody else can write to it.
inline bool is_own(const std::shared_ptr<void>& memory) { return std::get_deleter<OwnMemory>(memory) != nullptr; }

// Whether this pointer alone keeps memory that the library allocated: what may be written to, or given to somebody else.
inline bool is_sole_owner(const std::shared_ptr<void>& memory) { return memory.use_count() == 1 && is_own(memory); }

}  // namespace hotloop
