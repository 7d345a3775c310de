// The order in which a product passes over its right-hand factor: what the speed of a step on one row depends on.
#include "schedule/column_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace hotloop::kernel {
namespace {

// The gates of a recurrent step: [x; h] (rows, 8 + h) times (8 + h, 4h).
Dot gates(const Target& target, std::int64_t rows, std::int64_t h, bool in_loop) {
  Dot dot;
  dot.dtype = DType::F32;
  dot.m = Extent{rows};
  dot.n = Extent{4 * h};
  for (const std::int64_t k : {std::int64_t{8}, h}) {
    DotSegment segment;
    segment.k = {{Extent{k}, 1, 0}};
    segment.panel = panel_columns(target, {DType::F32, dot.m, 4 * h, 8 + h, in_loop});
    dot.segments.push_back(segment);
  }
  return dot;
}

// ">1x6 | 2x2 | 1x6": one tile of six vectors, two of two, one of six, in a walk that turns.
std::string text_of(const ColumnWalk& walk) {
  std::string text = walk.turns ? ">" : "";
  for (const TileRun& run : walk.runs)
    text += (text.size() > 1 ? " | " : "") + std::to_string((run.end - run.begin) / run.width) + "x" +
            std::to_string(run.width);
  return text;
}

TEST(ColumnWalk, EveryColumnIsVisitedOnce) {
  for (const std::string& name : target_names()) {
    Target target = target_named(name);
    for (target.l1_bytes_there = 16 << 10; target.l1_bytes_there <= (64 << 10); target.l1_bytes_there += 16 << 10)
      for (const std::int64_t rows : {1, 2, 3, 6, 12, 30})
        for (std::int64_t h = 1; h < 160; h += h < 20 ? 1 : 7) {
          const Dot dot = gates(target, rows, h, h % 2 == 0);
          const ColumnWalk walk = column_walk(target, dot, h % 2 == 0);
          SCOPED_TRACE(std::to_string(rows) + " " + std::to_string(h) + ": " + text_of(walk));
          std::int64_t at = 0;
          for (const TileRun& run : walk.runs) {
            ASSERT_EQ(run.begin, at);
            ASSERT_LT(run.begin, run.end);
            ASSERT_EQ((run.end - run.begin) % run.width, 0);
            ASSERT_EQ(run.width % walk.panel, 0);
            ASSERT_LE(run.width * std::min<std::int64_t>(rows, target.dot_rows),
                      std::max(target.dot_rows * target.dot_vectors, target.dot_rows * static_cast<int>(walk.panel)));
            at = run.end;
          }
          const std::int64_t vectors = (4 * h + 15) / 16;
          ASSERT_EQ(at, walk.rest);
          ASSERT_LE(walk.rest, vectors);
          ASSERT_LE(vectors - walk.rest, walk.panel) << "less than a panel is left over";
          if (!walk.turns || walk.runs.size() == 1) continue;
          ASSERT_EQ(walk.runs.size(), 3U) << "a tile at either end, and what lies between them";
          ASSERT_EQ(walk.runs.front().end, walk.runs.front().width);
          ASSERT_EQ(walk.runs.back().begin, at - walk.runs.front().width);
        }
  }
}

// The ends of the walk are what the first cache keeps from step to step.
TEST(ColumnWalk, OneRowTurnsWhereItsWeightsLeaveTheFirstCache) {
  const auto walk = [](const Target& target, std::int64_t rows, std::int64_t h, bool in_loop = true) {
    return text_of(column_walk(target, gates(target, rows, h, in_loop), in_loop));
  };
  Target target = target_named("avx512");
  EXPECT_EQ(walk(target, 1, 16), "1x4");
  EXPECT_EQ(walk(target, 1, 32), "1x8") << "all of it stays";
  EXPECT_EQ(walk(target, 1, 64), ">2x8");
  EXPECT_EQ(walk(target, 1, 80), ">1x7 | 3x2 | 1x7");
  EXPECT_EQ(walk(target, 1, 128), ">8x4");
  EXPECT_EQ(walk(target, 32, 128), "8x4") << "rows enough to use B while it is there";
  target.l1_bytes_there = 32 << 10;
  EXPECT_EQ(walk(target, 1, 40), "1x8") << "nearly all of it stays, two vectors that fill no panel included";
  EXPECT_EQ(walk(target, 1, 56), ">2x7");
  EXPECT_EQ(walk(target, 1, 64), ">1x6 | 2x2 | 1x6");
  EXPECT_EQ(walk(target, 1, 128), ">1x3 | 13x2 | 1x3");
  EXPECT_EQ(walk(target, 1, 64, false), ">4x4") << "between calls others use the cache";
  EXPECT_EQ(walk(target, 1, 128, false), ">8x4");
  EXPECT_EQ(walk(target, 12, 128), ">8x4");
  target = target_named("avx2");
  target.l1_bytes_there = 32 << 10;
  EXPECT_EQ(walk(target, 1, 64), ">1x6 | 2x2 | 1x6");
}

// What follows a product by blocks: so much work for a vector of units that the gates of an LSTM's or a GRU's step are.
TEST(ColumnWalk, WhatFollowsIsDoneBlockByBlockWhereTheSecondCacheIsWaitedFor) {
  constexpr double gates_of_lstm = 65, gates_of_gru = 60, tanh_alone = 15;
  const auto width = [](const Target& target, std::int64_t parts, std::int64_t h, std::int64_t panel, double cycles) {
    Dot dot = gates(target, 1, h, true);
    dot.n.bound = parts * h;
    for (DotSegment& segment : dot.segments) segment.panel = panel * lanes_of(dot.dtype);
    const auto walk = block_walk(target, dot, true, parts, cycles);
    return walk ? walk->width : 0;
  };
  Target zen5 = target_named("avx512"), zen4 = zen5;
  zen4.l1_bytes_there = 32 << 10;
  zen4.l1_rate_there = 64;
  EXPECT_EQ(width(zen4, 4, 64, 1, gates_of_lstm), 1);
  EXPECT_EQ(width(zen5, 4, 64, 1, gates_of_lstm), 2) << "two multiplications a cycle want eight accumulators";
  EXPECT_EQ(width(zen4, 3, 64, 1, gates_of_gru), 2) << "three accumulators would wait for themselves";
  EXPECT_EQ(width(zen4, 3, 128, 1, gates_of_gru), 1) << "two blocks would leave nothing in the first cache";
  EXPECT_EQ(width(zen4, 4, 32, 1, gates_of_lstm), 0) << "nothing is waited for";
  EXPECT_EQ(width(zen4, 1, 128, 1, tanh_alone), 0) << "next to nothing follows";
  EXPECT_EQ(width(zen4, 4, 64, 4, gates_of_lstm), 0) << "a vector of each panel lies in a quarter of the cache's sets";
  EXPECT_EQ(width(zen4, 4, 128, 4, gates_of_lstm), 1) << "of so many weights nothing stays either way";
  EXPECT_EQ(width(zen4, 4, 144, 4, gates_of_lstm), 0) << "a part would begin within a panel";
}

// Panels as such walks want them, of [h] (1, h) times (h, parts * h).
TEST(ColumnWalk, PanelsAreAsNarrowAsAWalkByBlocksWants) {
  const auto vectors = [](const Target& target, std::int64_t parts, std::int64_t h, bool in_loop = true,
                          std::int64_t rows = 1) {
    const ProductShape shape{DType::F32, Extent{rows}, parts * h, h, in_loop, parts};
    return panel_columns(target, shape) / lanes_of(DType::F32);
  };
  Target zen5 = target_named("avx512"), zen4 = zen5;
  zen4.l1_bytes_there = 32 << 10;
  zen4.l1_rate_there = 64;
  EXPECT_EQ(vectors(zen4, 4, 64), 2) << "two tiles of 16 KB stay, each in its own half of the cache's sets";
  EXPECT_EQ(vectors(zen4, 4, 80), 1) << "of 20 KB they would not, and five blocks are no whole panels";
  EXPECT_EQ(vectors(zen4, 4, 96), 1);
  EXPECT_EQ(vectors(zen4, 4, 128), 1);
  EXPECT_EQ(vectors(zen4, 4, 32), 4) << "all of it stays";
  EXPECT_EQ(panel_columns(zen4, {DType::F32, Extent{1}, 4 * 96, 96, true}), 64) << "nothing is known of what follows";
  EXPECT_EQ(vectors(zen4, 4, 96, false), 4);
  EXPECT_EQ(vectors(zen4, 4, 96, true, 12), 4);
  EXPECT_EQ(vectors(zen5, 4, 64), 2) << "tiles of two blocks";
  for (const std::int64_t h : {1, 4, 8, 16})
    EXPECT_EQ(panel_columns(zen4, {DType::F32, Extent{1}, 2 * h, 5000, true, 2}) % 16, 0)
        << "fewer columns than a panel has";
  // Bound weights, of which all products of a step together are asked for.
  EXPECT_EQ(bound_panel_columns(zen4, DType::F32, 1, 72 << 10), 16);
  EXPECT_EQ(bound_panel_columns(zen4, DType::F64, 1, 72 << 10), 8);
  EXPECT_EQ(bound_panel_columns(zen4, DType::F32, 1, 20 << 10), 64) << "all stays";
  EXPECT_EQ(bound_panel_columns(zen4, DType::F32, 2, 72 << 10), 64);
  EXPECT_EQ(bound_panel_columns(zen5, DType::F32, 1, 72 << 10), 64);
  EXPECT_EQ(bound_panel_columns(target_named("avx2"), DType::F32, 1, 72 << 10), 16);
}

}  // namespace
}  // namespace hotloop::kernel
