// Recycled memory: outputs of executables and their arenas. Fresh pages cost more than the arithmetic of a small step.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hotloop::runtime {

// Memory for arrays, in size classes (four a power of two). The shared pointer's control block lives in the block itself, so a
// take that finds a free block calls no allocator. All members may be called from any thread; none takes a lock. A free block
// waits in one of a class's slots, which are exchanged whole, so there is no list to corrupt and nothing to reclaim.
class MemoryPool {
 public:
  explicit MemoryPool(std::size_t max_kept_bytes = std::size_t{1} << 30) : max_kept_bytes_(max_kept_bytes) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // At least `bytes` bytes, uninitialised, 64-byte aligned. The pool must outlive the pointer.
  std::shared_ptr<void> take(std::size_t bytes);

  std::size_t kept_bytes() const { return kept_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t num_fresh() const { return num_fresh_.load(std::memory_order_relaxed); }  // blocks the system gave
  void release_kept();  // gives all free blocks back to the system

  struct Block;

 private:
  static constexpr int num_classes = 120;  // 64 B .. 2^36 B
  static constexpr int slots_per_class = 64;
  struct Class {
    std::array<std::atomic<Block*>, slots_per_class> slots{};
  };
  template <class T> struct ControlBlockAllocator;

  Block* take_block(std::size_t bytes);
  void put_block(Block* block) noexcept;

  std::array<Class, num_classes> classes_{};
  std::size_t max_kept_bytes_;
  std::atomic<std::size_t> kept_bytes_{0};
  std::atomic<std::uint64_t> num_fresh_{0};
};

MemoryPool& array_pool();  // of all executables; never destroyed

// Free objects of one kind, of which a call takes one for itself: lock-free, bounded.
template <class T, int max_kept = 16> class ObjectPool {
 public:
  ~ObjectPool() {
    for (auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
  }
  // A free object, or nullptr.
  std::unique_ptr<T> take() {
    for (auto& slot : slots_) {
      if (slot.load(std::memory_order_relaxed) == nullptr) continue;
      if (T* p = slot.exchange(nullptr, std::memory_order_acquire)) return std::unique_ptr<T>(p);
    }
    return nullptr;
  }
  void put(std::unique_ptr<T> object) noexcept {
    for (auto& slot : slots_) {
      T* expected = nullptr;
      if (slot.load(std::memory_order_relaxed) == nullptr &&
          slot.compare_exchange_strong(expected, object.get(), std::memory_order_release, std::memory_order_relaxed)) {
        (void)object.release();
        return;
      }
    }
  }

 private:
  std::array<std::atomic<T*>, static_cast<std::size_t>(max_kept)> slots_{};
};

}  // namespace hotloop::runtime
