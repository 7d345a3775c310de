// The order in which a Dot walks over its B: what the speed of a step on one row depends on.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "backends/llvm/dot_walk.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "schedule/host.h"

namespace hotloop::codegen {
namespace {

TEST(LlvmDotWalk, FewColumnsTakeRegistersThatTheyFill) {
  kernel::Dot dot;
  for (const auto& [n, f32, f64] : std::vector<std::tuple<std::int64_t, int, int>>{
           {1, 1, 1}, {2, 4, 2}, {3, 4, 4}, {4, 4, 4}, {5, 8, 8}, {8, 8, 8}, {9, 16, 8}, {64, 16, 8}}) {
    dot.n = kernel::Extent{n};
    dot.dtype = DType::F32;
    EXPECT_EQ(lanes_for_columns(dot, false), f32) << n;
    EXPECT_EQ(lanes_for_columns(dot, true), n == 1 ? 1 : 16) << "as the Maps beside it, " << n;
    dot.dtype = DType::F64;
    EXPECT_EQ(lanes_for_columns(dot, false), f64) << n;
  }
}

TEST(LlvmDotWalk, TheCodeIsForTheCachesOfTheMachineThatRunsIt) {
  if (kernel::host_l1_bytes() == 0) GTEST_SKIP() << "the system does not say how large it is";
  const auto graph = trace([](std::span<const Value> x) { return std::vector<Value>{-x[0]}; },
                           std::vector<ValueType>{{DType::F32, {4}}});
  const std::string text = compile(graph).kernel_text();
  EXPECT_NE(text.find("(" + std::to_string(kernel::host_l1_bytes()) + " there, "), std::string::npos) << text;
  if (kernel::host_l2_bytes() > 0)
    EXPECT_NE(text.find("(" + std::to_string(kernel::host_l2_bytes()) + " there)"), std::string::npos) << text;
  EXPECT_EQ(text.find("avx512") != std::string::npos && text.find(" there, 64 a cycle)") != std::string::npos,
            kernel::host_halves_vectors())
      << text;
}

// Loads of an instruction that are 2 KB or more apart, one line after the other, are what prefetching of Zen 5 gets wrong.
TEST(LlvmDotWalk, ABodyMovesOnByOneKilobyteAtMost) {
  for (const std::int64_t step : {64, 128, 256, 512, 1024}) {
    for (const std::int64_t accumulators : {1, 4, 8, 16, 24}) {
      const std::int64_t steps = steps_in_body(kernel::Extent{128}, accumulators, step);
      EXPECT_LE(steps * step, 1024) << step << ' ' << accumulators;
      EXPECT_GE(steps, 1);
    }
  }
  EXPECT_EQ(steps_in_body(kernel::Extent{128}, 8, 256), 4);
  EXPECT_EQ(steps_in_body(kernel::Extent{128}, 24, 256), 1);
  EXPECT_EQ(steps_in_body(kernel::Extent{3}, 8, 400), 3) << "a short one at once";
  EXPECT_EQ(steps_in_body(kernel::Extent{128}, 4, 8192), 8) << "steps that lie far apart anyway";
}

}  // namespace
}  // namespace hotloop::codegen
