// The kernel of a program is the same in each process, or it would be compiled anew in each: nothing may go by addresses.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hotloop/hotloop.h"
#include "hotloop/linalg.h"
#include "runtime/lowering.h"
#include "schedule/kernel_ir.h"

namespace hotloop {
namespace {

// Holes of all sizes all over the heap, of which what is made next fills one or the other.
std::vector<std::unique_ptr<char[]>> scattered_heap(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<std::unique_ptr<char[]>> blocks;
  for (int i = 0; i < 20000; ++i) blocks.push_back(std::make_unique<char[]>(16 + rng() % 600));
  std::ranges::shuffle(blocks, rng);
  blocks.resize(blocks.size() / 2);
  return blocks;
}

TEST(KernelText, DoesNotDependOnAddresses) {
  using Body = std::function<std::vector<Value>(std::span<const Value>)>;
  const std::vector<std::pair<std::string, Body>> programs = {
      {"inverse",
       [](std::span<const Value> v) {
         const std::int64_t n = v[0].shape()[0];
         const Value one = cast(equal(iota(DType::I32, {n, n}, 0), iota(DType::I32, {n, n}, 1)), DType::F64);
         return std::vector<Value>{sum(linalg::solve(v[0], one))};
       }},
      {"determinant", [](std::span<const Value> v) { return std::vector<Value>{linalg::det(v[0])}; }},
      {"factor", [](std::span<const Value> v) { return std::vector<Value>{sum(linalg::cholesky(v[0]))}; }},
  };
  for (const auto& [name, fn] : programs)
    for (const std::int64_t n : {5, 40}) {
      std::string first;
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const auto holes = scattered_heap(seed);
        const auto graph = trace(grad(fn, {0}), std::vector<ValueType>{{DType::F64, {n, n}}});
        const std::string text = kernel::print(runtime::lower(*graph, {}, kernel::target_named("avx2")).program);
        if (seed == 0) first = text;
        ASSERT_EQ(text, first) << name << " of " << n;
      }
    }
}

}  // namespace
}  // namespace hotloop
