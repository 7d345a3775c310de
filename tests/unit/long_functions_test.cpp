// Functions of many instructions that wait for one another stand in maps of their own, where there are points enough.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "ir/op_def.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

// Divisions one after another in a map: each of tanh and sigmoid ends with one.
int longest_chain(const kernel::Map& map) {
  std::vector<int> chain(map.instrs.size(), 0);
  for (std::size_t i = 0; i < map.instrs.size(); ++i) {
    const kernel::Instr& in = map.instrs[i];
    for (const int arg : in.args)
      if (arg >= 0) chain[i] = std::max(chain[i], chain[static_cast<std::size_t>(arg)]);
    if (in.kind == kernel::Instr::Kind::Op && in.op == kernel::ScalarOp::Div) ++chain[i];
  }
  return chain.empty() ? 0 : *std::ranges::max_element(chain);
}

struct Counts {
  int maps_with_functions = 0, longest = 0;
};

void count(const kernel::Block& block, Counts& counts) {
  for (const kernel::Stmt& stmt : block) {
    if (const auto* single = std::get_if<kernel::Single>(&stmt.node)) count(single->body, counts);
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) count(grid->body, counts);
    if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) count(loop->body, counts);
    if (const auto* map = std::get_if<kernel::Map>(&stmt.node)) {
      const int chain = longest_chain(*map);
      counts.maps_with_functions += chain > 0;
      counts.longest = std::max(counts.longest, chain);
    }
  }
}

// c = tanh(x) * sigmoid(y) is a result, and so is z * tanh(c).
Counts counts_of(std::int64_t rows, std::int64_t columns) {
  const auto cell = [](Values in) {
    const Value c = tanh(in[0]) * sigmoid(in[1]);
    return std::vector<Value>{c, in[2] * tanh(c)};
  };
  const std::vector<ValueType> types(3, ValueType{DType::F32, {rows, columns}});
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  Counts counts;
  count(schedule(*passes::optimize(*trace(cell, types), {}), options).body, counts);
  return counts;
}

TEST(LongFunctions, ThatFollowOneAnotherHaveMapsOfTheirOwn) {
  const Counts counts = counts_of(8, 64);
  EXPECT_EQ(counts.maps_with_functions, 2);
  EXPECT_EQ(counts.longest, 1);
}

TEST(LongFunctions, ShareAMapOfFewPointsOrShortRows) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>(1, 64), {64, 8}}) {
    const Counts counts = counts_of(rows, columns);
    EXPECT_EQ(counts.maps_with_functions, 1) << rows;
    EXPECT_EQ(counts.longest, 2) << rows;
  }
}

}  // namespace
}  // namespace hotloop
