// Sums over the rows of a batch: by blocks of tiles, each in a place of its own, or, of a single block, in the result.
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "passes/pipeline.h"
#include "schedule/accesses.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;
constexpr DType f32 = DType::F32;

// What is done with a gradient besides adding it up.
struct Counts {
  int fills = 0, copies = 0, blocks = 0;
};

Counts counts_of(std::int64_t rows, bool variable_rows = false) {
  const Function loss = [](Values in) { return std::vector<Value>{mean(square(tanh(matmul(in[0], in[1]))))}; };
  passes::PassOptions pass_options;
  pass_options.variable_rows = variable_rows;
  ScheduleOptions options;
  options.variable_rows = variable_rows;
  options.batch_axes = {0, -1};
  const auto graph = trace(value_and_grad(loss, {1}), std::vector<ValueType>{{f32, {rows, 64}}, {f32, {64, 48}}});
  const kernel::Program program = schedule(*passes::optimize(*graph, pass_options), options);
  Counts counts;
  for_each_statement(program.body, [&](const auto& statement) {
    using Kind = std::decay_t<decltype(statement)>;
    if constexpr (std::is_same_v<Kind, kernel::Map>) {
      std::int64_t points = 1;
      for (const auto& dim : statement.dims) points *= dim.extent.bound;
      if (points < 64 * 48) return;
      counts.fills += statement.name == "fill";
      counts.copies += statement.name == "copy";
    }
  });
  for (const kernel::Stmt& stmt : program.body)
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) counts.blocks += static_cast<int>(grid->num_blocks);
  return counts;
}

TEST(PartialSums, ThoseOfOneTileAreTheResult) {
  const Counts counts = counts_of(5);
  EXPECT_EQ(counts.blocks, 1);
  EXPECT_EQ(counts.fills, 0);
  EXPECT_EQ(counts.copies, 0);
}

TEST(PartialSums, ThoseOfTilesBeginAtZero) {
  const Counts counts = counts_of(200);
  EXPECT_GT(counts.blocks, 1);
  EXPECT_EQ(counts.fills, 1);
  EXPECT_EQ(counts.copies, 0) << "the blocks are added up where the result lies";
}

// Of how many rows is known in the call alone: there may be none.
TEST(PartialSums, ThoseOfUnknownRowsBeginAtZero) {
  const Counts counts = counts_of(5, true);
  EXPECT_EQ(counts.blocks, 1);
  EXPECT_EQ(counts.fills, 1);
  EXPECT_EQ(counts.copies, 0);
}

}  // namespace
}  // namespace hotloop
