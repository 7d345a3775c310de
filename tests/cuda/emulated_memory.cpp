#include "cuda/emulated_memory.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

#include "hotloop/error.h"

namespace hotloop::cuda::emulated {

Address Memory::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (static_cast<std::int64_t>(in_use_ + bytes) > limit_) {
    throw UserError("cuda", "needs " + std::to_string(bytes) + " bytes of the device's memory",
                    std::to_string(limit_ - static_cast<std::int64_t>(in_use_)) + " bytes that are free",
                    "take smaller batches");
  }
  Guarded memory(bytes, 256);
  if (hidden_ && users_ == 0) memory.show(false);
  const Address at = reinterpret_cast<Address>(memory.begin());
  in_use_ += bytes;
  allocations_.emplace(at, std::move(memory));
  return at;
}

void Memory::release(Address at) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(at);
  if (found == allocations_.end()) {
    std::fprintf(stderr, "emulated device: %#llx is released, which is not allocated\n",
                 static_cast<unsigned long long>(at));
    std::abort();
  }
  in_use_ -= found->second.bytes();
  allocations_.erase(found);
}

std::size_t Memory::in_use() {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

void Memory::check(Address at, std::size_t bytes, const char* what) {
  const std::lock_guard lock(mutex_);
  auto found = allocations_.upper_bound(at);
  if (found == allocations_.begin() || (--found, at + bytes > found->first + found->second.bytes())) {
    std::ostringstream text;
    text << what << " of " << bytes << " bytes at 0x" << std::hex << at << ", which are not in one allocation";
    throw EmulationError(text.str());
  }
}

void Memory::check_guards() {
  const std::lock_guard lock(mutex_);
  for (const auto& [at, memory] : allocations_) {
    const std::string where = memory.written_beside();
    if (!where.empty()) {
      throw EmulationError("a kernel wrote " + where + " an allocation of " + std::to_string(memory.bytes()) +
                           " bytes");
    }
  }
}

void Memory::use(int change) {
  const std::lock_guard lock(mutex_);
  const bool was_used = users_ > 0;
  users_ += change;
  if (!hidden_ || was_used == (users_ > 0)) return;
  for (auto& [at, memory] : allocations_) memory.show(users_ > 0);
}

}  // namespace hotloop::cuda::emulated
