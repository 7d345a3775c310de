// The memory of an emulated device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "backends/cuda/device.h"
#include "cuda/emulated_device.h"
#include "cuda/guarded.h"

namespace hotloop::cuda::emulated {

class Memory {
 public:
  explicit Memory(const EmulatedOptions& options) : limit_(options.memory_bytes), hidden_(options.hidden_memory) {}

  Address allocate(std::size_t bytes);
  void release(Address at) noexcept;
  std::size_t in_use();
  // Throws unless the bytes lie in one allocation.
  void check(Address at, std::size_t bytes, const char* what);
  void check_guards();

  // Kernels and copies run while one of these lives.
  class Use {
   public:
    explicit Use(Memory& memory) : memory_(memory) { memory_.use(1); }
    // Of these bytes, which may have been released since it was asked for.
    Use(Memory& memory, Address at, std::size_t bytes, const char* what) : Use(memory) {
      memory_.check(at, bytes, what);
    }
    ~Use() { memory_.use(-1); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Memory& memory_;
  };

 private:
  void use(int change);

  std::mutex mutex_;
  std::map<Address, Guarded> allocations_;
  std::size_t in_use_ = 0;
  const std::int64_t limit_;
  const bool hidden_;
  int users_ = 0;
};

}  // namespace hotloop::cuda::emulated
