// Arenas in pages of 2 MB.
#include "runtime/large_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace hotloop::runtime {
namespace {

std::uintptr_t address(const Memory& memory) { return reinterpret_cast<std::uintptr_t>(memory.get()); }

TEST(LargeMemory, BeginsWithALargePage) {
  for (const std::size_t bytes : {2 * large_page_bytes, 5 * large_page_bytes + 64}) {
    const Memory memory = take_memory(bytes, 64);
    EXPECT_EQ(address(memory) % large_page_bytes, 0u);
    std::memset(memory.get(), 0xff, bytes);  // all of it is there
  }
}

TEST(LargeMemory, IsForLargeArenasOnly) {
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{4096}, 2 * large_page_bytes - 64}) {
    const Memory memory = take_memory(bytes, 64);
    EXPECT_EQ(address(memory) % 64, 0u);
    std::memset(memory.get(), 0xff, bytes);
  }
}

}  // namespace
}  // namespace hotloop::runtime
