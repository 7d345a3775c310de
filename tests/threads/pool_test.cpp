#include "runtime/pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace hotloop::runtime {
namespace {

TEST(MemoryPool, RecyclesBySizeClass) {
  MemoryPool pool;
  void* first = nullptr;
  {
    const auto a = pool.take(1000);
    first = a.get();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
  }
  EXPECT_EQ(pool.take(1010).get(), first);  // 1000 and 1010 round up to 1024
  EXPECT_EQ(pool.num_fresh(), 1u);
  EXPECT_NE(pool.take(1100).get(), first);
  EXPECT_EQ(pool.num_fresh(), 2u);
}

TEST(MemoryPool, EverySizeFitsAndWastesLittle) {
  MemoryPool pool;
  for (std::size_t bytes : {0u, 1u, 63u, 64u, 65u, 80u, 81u, 96u, 127u, 128u, 129u, 4095u, 4097u, 65536u, 1000003u}) {
    std::size_t before = pool.kept_bytes();
    {
      const auto p = pool.take(bytes);
      before = pool.kept_bytes();
      std::memset(p.get(), 0xab, bytes);  // asan checks the bounds
    }
    const std::size_t size = pool.kept_bytes() - before;
    EXPECT_GE(size, bytes);
    EXPECT_LE(size, std::max<std::size_t>(64, bytes + bytes / 4 + 1)) << bytes;
  }
}

TEST(MemoryPool, AWeakPointerKeepsTheBlockOut) {
  MemoryPool pool;
  auto p = pool.take(256);
  const std::weak_ptr<void> weak = p;
  const void* address = p.get();
  p.reset();
  EXPECT_EQ(pool.kept_bytes(), 0u);  // the control block lives in it
  EXPECT_NE(pool.take(256).get(), address);
  EXPECT_TRUE(weak.expired());
}

TEST(MemoryPool, KeepsNoMoreThanAllowed) {
  MemoryPool pool(4096);
  {
    std::vector<std::shared_ptr<void>> held;
    for (int i = 0; i < 100; ++i) held.push_back(pool.take(1024));
  }
  EXPECT_LE(pool.kept_bytes(), 4096u);
  EXPECT_GE(pool.kept_bytes(), 1024u);
  pool.release_kept();
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

TEST(MemoryPool, ThreadsNeverShareABlock) {
  MemoryPool pool;
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const auto a = pool.take(512), b = pool.take(512);
        std::memset(a.get(), t, 512);
        std::memset(b.get(), t + 16, 512);
        if (static_cast<unsigned char*>(a.get())[i % 512] != t ||
            static_cast<unsigned char*>(b.get())[i % 512] != t + 16)
          ++errors;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(errors.load(), 0);
  EXPECT_LE(pool.num_fresh(), 64u);
}

TEST(ObjectPool, GivesBackWhatWasPut) {
  ObjectPool<int, 2> pool;
  EXPECT_EQ(pool.take(), nullptr);
  for (int i = 1; i <= 3; ++i) pool.put(std::make_unique<int>(i));  // the third finds no room
  int sum = 0;
  while (auto p = pool.take()) sum += *p;
  EXPECT_EQ(sum, 3);
}

}  // namespace
}  // namespace hotloop::runtime
