#include "runtime/pool.h"

#include <bit>
#include <cstdlib>
#include <new>

#include "core/own_memory.h"
#include "runtime/large_memory.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace hotloop::runtime {
namespace {

constexpr std::size_t alignment = 64;
constexpr int min_log2 = 6;

// Class 4k+j holds 2^(6+k) * (4+j)/4 bytes.
int class_of(std::size_t bytes) {
  if (bytes <= (std::size_t{1} << min_log2)) return 0;
  const int log2 = static_cast<int>(std::bit_width(bytes - 1)) - 1;  // 2^log2 < bytes <= 2^(log2+1)
  const std::size_t quarter = (std::size_t{1} << log2) / 4;
  const int j = static_cast<int>((bytes - (std::size_t{1} << log2) + quarter - 1) / quarter);  // 1..4
  return (log2 - min_log2) * 4 + j;
}

std::size_t bytes_of_class(int c) {
  const std::size_t base = std::size_t{1} << (min_log2 + c / 4);
  return base + base / 4 * static_cast<std::size_t>(c % 4);
}

}  // namespace

// What precedes the memory handed out.
struct alignas(alignment) MemoryPool::Block {
  MemoryPool* pool;
  std::size_t bytes;                        // of the payload
  int size_class;                           // -1: too large to keep
  alignas(16) std::byte control_block[96];  // of the shared pointer
  std::byte* payload() { return reinterpret_cast<std::byte*>(this) + sizeof(Block); }
};

// Places the control block inside the block and frees the block with it: the control block is what lives longest.
template <class T> struct MemoryPool::ControlBlockAllocator {
  using value_type = T;
  Block* block;

  explicit ControlBlockAllocator(Block* b) : block(b) {}
  template <class U> ControlBlockAllocator(const ControlBlockAllocator<U>& other) : block(other.block) {}
  T* allocate(std::size_t) {
    static_assert(sizeof(T) <= sizeof(Block::control_block) && alignof(T) <= 16);
    return reinterpret_cast<T*>(block->control_block);
  }
  void deallocate(T*, std::size_t) noexcept { block->pool->put_block(block); }
  template <class U> bool operator==(const ControlBlockAllocator<U>& other) const { return block == other.block; }
};

std::shared_ptr<void> MemoryPool::take(std::size_t bytes) {
  Block* block = take_block(bytes);
  return std::shared_ptr<void>(block->payload(), OwnMemory{.is_pooled = true}, ControlBlockAllocator<std::byte>(block));
}

MemoryPool::Block* MemoryPool::take_block(std::size_t bytes) {
  int size_class = class_of(bytes);
  if (size_class >= num_classes) size_class = -1;
  if (size_class >= 0) {
    for (auto& slot : classes_[static_cast<std::size_t>(size_class)].slots) {
      if (slot.load(std::memory_order_relaxed) == nullptr) continue;
      if (Block* block = slot.exchange(nullptr, std::memory_order_acquire)) {
        kept_bytes_.fetch_sub(block->bytes, std::memory_order_relaxed);
        ASAN_UNPOISON_MEMORY_REGION(block->payload(), block->bytes);
        return block;
      }
    }
  }
  const std::size_t size = size_class >= 0 ? bytes_of_class(size_class) : bytes;
  const std::size_t total = (sizeof(Block) + size + alignment - 1) / alignment * alignment;
  if (total <= size) throw std::bad_alloc();
  void* memory = take_memory(total, alignment).release();
  num_fresh_.fetch_add(1, std::memory_order_relaxed);
  auto* block = new (memory) Block;
  block->pool = this;
  block->bytes = size;
  block->size_class = size_class;
  return block;
}

void MemoryPool::put_block(Block* block) noexcept {
  if (block->size_class >= 0 && kept_bytes() + block->bytes <= max_kept_bytes_) {
    const std::size_t bytes = block->bytes;
    kept_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    ASAN_POISON_MEMORY_REGION(block->payload(), bytes);
    for (auto& slot : classes_[static_cast<std::size_t>(block->size_class)].slots) {
      Block* expected = nullptr;
      if (slot.load(std::memory_order_relaxed) == nullptr &&
          slot.compare_exchange_strong(expected, block, std::memory_order_release, std::memory_order_relaxed))
        return;
    }
    ASAN_UNPOISON_MEMORY_REGION(block->payload(), bytes);
    kept_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  std::free(block);
}

void MemoryPool::release_kept() {
  for (Class& c : classes_)
    for (auto& slot : c.slots)
      if (Block* block = slot.exchange(nullptr, std::memory_order_acquire)) {
        kept_bytes_.fetch_sub(block->bytes, std::memory_order_relaxed);
        ASAN_UNPOISON_MEMORY_REGION(block->payload(), block->bytes);
        std::free(block);
      }
}

MemoryPool::~MemoryPool() { release_kept(); }

MemoryPool& array_pool() {
  static MemoryPool& pool = *new MemoryPool;  // arrays may outlive every static object
  return pool;
}

}  // namespace hotloop::runtime
