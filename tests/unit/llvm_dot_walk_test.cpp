// The order in which a Dot walks over its B: what the speed of a step on one row depends on.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/llvm/dot_walk.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "schedule/host.h"

namespace hotloop::codegen {
namespace {

// The gates of a recurrent step: [x; h] (rows, 8 + h) times (8 + h, 4h).
kernel::Dot gates(std::int64_t rows, std::int64_t h) {
  kernel::Dot dot;
  dot.dtype = DType::F32;
  dot.m = kernel::Extent{rows};
  dot.n = kernel::Extent{4 * h};
  for (const std::int64_t k : {std::int64_t{8}, h}) {
    kernel::DotSegment segment;
    segment.k = {{kernel::Extent{k}, 1, 0}};
    segment.packed = true;
    dot.segments.push_back(segment);
  }
  return dot;
}

TEST(LlvmDotWalk, OneRowPassesPanelsSideBySideWhileTheyStayInTheFirstCache) {
  kernel::Target target = kernel::target_named("avx512");
  for (const std::int64_t h : {16, 48, 64}) EXPECT_EQ(panels_side_by_side(target, gates(1, h)), 2) << h;
  for (const std::int64_t h : {80, 128, 256}) {
    EXPECT_TRUE(alternates(target, gates(1, h))) << h;
    EXPECT_EQ(panels_side_by_side(target, gates(1, h)), 1) << h;
  }
  EXPECT_EQ(panels_side_by_side(target, gates(12, 128)), 1);
  EXPECT_FALSE(alternates(target, gates(32, 128))) << "rows enough to use B while it is there";
  target.l1_bytes_there = 32 << 10;
  EXPECT_EQ(panels_side_by_side(target, gates(1, 32)), 2) << "all of it stays";
  for (const std::int64_t h : {48, 64, 128}) EXPECT_EQ(panels_side_by_side(target, gates(1, h)), 1) << h;
}

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

// Many panels side by side are fast, few keep more of B.
TEST(LlvmDotWalk, TilesThatAlternateAreAsWideAsTheFirstCacheAllows) {
  kernel::Target target = kernel::target_named("avx2");
  target.l1_bytes_there = 32 << 10;
  for (const auto& [h, side] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{48, 4}, {52, 6}, {56, 2}, {64, 4}, {96, 4}, {128, 2}})
    EXPECT_EQ(panels_side_by_side(target, gates(1, h)), side) << h;
}

TEST(LlvmDotWalk, TheCodeIsForTheCacheOfTheMachineThatRunsIt) {
  if (kernel::host_l1_bytes() == 0) GTEST_SKIP() << "the system does not say how large it is";
  const auto graph = trace([](std::span<const Value> x) { return std::vector<Value>{-x[0]}; },
                           std::vector<ValueType>{{DType::F32, {4}}});
  const std::string text = compile(graph).kernel_text();
  EXPECT_NE(text.find("(" + std::to_string(kernel::host_l1_bytes()) + " there)"), std::string::npos) << text;
}

// With panels of one vector (of two registers), one row needs several of them to have enough sums in flight.
TEST(LlvmDotWalk, NoPanelIsLeftOverAlone) {
  const kernel::Target target = kernel::target_named("avx2");
  for (const auto& [h, side] : std::vector<std::pair<std::int64_t, std::int64_t>>{{16, 4}, {32, 4}, {48, 6}, {64, 4}})
    EXPECT_EQ(panels_side_by_side(target, gates(1, h)), side) << h;
  for (std::int64_t panels = 0; panels < 40; ++panels) {
    for (std::int64_t side = 1; side <= 6; ++side) {
      const PanelTiles tiles = panel_tiles(panels, side);
      ASSERT_LE(tiles.in_wide, panels);
      EXPECT_EQ(tiles.in_wide % (tiles.width + 1), 0);
      EXPECT_EQ((panels - tiles.in_wide) % tiles.width, 0);
      EXPECT_LE(tiles.in_wide > 0 ? tiles.width + 1 : tiles.width, side);
      if (panels > side) EXPECT_GE(2 * tiles.width, side) << panels;
      if (panels > 0 && panels <= side) EXPECT_EQ(tiles.width, panels) << "one tile";
    }
  }
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
