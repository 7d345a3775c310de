// Where a factor of a product that is read with a stride, many times, is copied once: before the loops in which it stays the same, or before those that
// read it again.
#include <gtest/gtest.h>

#include <vector>

#include "hotloop/graph.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

struct Counts {
  // Copies and packs, by how many loops stand around them inside a grid, or in a program without one.
  std::vector<int> copies = std::vector<int>(4);
  int before_grids = 0, strided = 0, dots = 0;  // `strided`: of the dots
  std::int64_t copied_bytes = 0;
};

void count(const kernel::Program& program, const kernel::Block& block, std::size_t depth, bool in_grid,
           Counts& counts) {
  for (const kernel::Stmt& stmt : block) {
    if (const auto* single = std::get_if<kernel::Single>(&stmt.node))
      count(program, single->body, depth, in_grid, counts);
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) count(program, grid->body, 0, true, counts);
    if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) count(program, loop->body, depth + 1, in_grid, counts);
    int buffer = -1;
    if (const auto* map = std::get_if<kernel::Map>(&stmt.node); map && map->name == "rows")
      buffer = map->instrs.back().access.buffer;
    if (const auto* pack = std::get_if<kernel::Pack>(&stmt.node)) buffer = pack->target;
    if (buffer >= 0) {
      counts.copied_bytes += kernel::bytes_of(program.buffers[static_cast<std::size_t>(buffer)]);
      ++(in_grid ? counts.copies[depth] : counts.before_grids);
    }
    const auto* dot = std::get_if<kernel::Dot>(&stmt.node);
    if (dot == nullptr) continue;
    ++counts.dots;
    for (const kernel::DotSegment& s : dot->segments) counts.strided += !s.packed() && dot->n.bound > 1 && s.b_n != 1;
  }
}

Counts counts_of(const Function& f, const std::vector<ValueType>& types, const std::vector<int>& batch_axes = {}) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  options.batch_axes = batch_axes;
  Counts counts;
  const kernel::Program program = schedule(*passes::optimize(*trace(f, types), {}), options);
  count(program, program.body, 0, false, counts);
  return counts;
}

ValueType floats(std::vector<std::int64_t> shape) { return {DType::F32, Shape(shape)}; }

// y[h, l, b] = sum over s of a[h, l, s] u[b, s, h], as a state space layer's convolution: the numbers of u that a product needs are a line apart, and
// products of neighbouring h share these lines. A tile copies them once, for all its h.
std::vector<Value> toeplitz(Values in) {
  return {mean(dot(in[0], in[1], {.lhs_contract = {2}, .rhs_contract = {1}, .lhs_batch = {0}, .rhs_batch = {2}}))};
}

TEST(CopiedFactors, ColumnsThatShareLinesAreCopiedOnceForAllProducts) {
  const Counts counts = counts_of(toeplitz, {floats({32, 64, 64}), floats({16, 64, 32})});
  EXPECT_EQ(counts.dots, 1);
  EXPECT_EQ(counts.strided, 0);
  EXPECT_EQ(counts.copies, (std::vector<int>{1, 0, 0, 0}));
  EXPECT_EQ(counts.copied_bytes, 8 * 64 * 16 * 4);  // of eight of the 32, a tile's
}

// In the gradient the rows of a are the tiles, and all of them read the same u: it is copied before, for either product in its order.
TEST(CopiedFactors, WhatAllTilesReadIsCopiedBeforeThem) {
  const auto gradient = value_and_grad(
      [](Values in) {
        const Value y =
            dot(in[0], in[1], {.lhs_contract = {2}, .rhs_contract = {1}, .lhs_batch = {0}, .rhs_batch = {2}});
        return std::vector<Value>{mean(square(y))};
      },
      {0});
  const Counts counts = counts_of(gradient, {floats({32, 64, 64}), floats({16, 64, 32})}, {1, -1});
  EXPECT_EQ(counts.dots, 2);
  EXPECT_EQ(counts.strided, 0);
  EXPECT_EQ(counts.before_grids, 2);
  EXPECT_EQ(counts.copies, (std::vector<int>(4)));
}

// Keys of attention: each head's are whole lines, turned before the product that reads them for eleven blocks of queries.
TEST(CopiedFactors, ColumnsOfTheirOwnLinesArePackedBeforeEachProduct) {
  const auto scores = [](Values in) {
    return std::vector<Value>{
        dot(in[0], in[1], {.lhs_contract = {3}, .rhs_contract = {3}, .lhs_batch = {0, 2}, .rhs_batch = {0, 2}})};
  };
  const Counts counts = counts_of(scores, {floats({8, 64, 4, 16}), floats({8, 64, 4, 16})}, {0, 0});
  EXPECT_EQ(counts.strided, 0);
  EXPECT_EQ(counts.copies, (std::vector<int>{0, 1, 0, 0}));  // a tile is one of the eight, a loop its heads
  EXPECT_EQ(counts.copied_bytes, 16 * 64 * 4);
  // Few queries read them as often as a copy would.
  const Counts few = counts_of(scores, {floats({8, 6, 4, 16}), floats({8, 64, 4, 16})}, {0, 0});
  EXPECT_EQ(few.copied_bytes, 0);
}

// Weights of each net of an ensemble that a loop multiplies by, from the other side: turned once for each net, before its loop.
TEST(CopiedFactors, WhatALoopOfATileReadsIsCopiedBeforeIt) {
  const auto net = [](Values in) {
    const auto step = [&](Values h, Values) {
      return std::pair(std::vector<Value>{tanh(matmul(h[0], transpose(in[1], {1, 0})))}, std::vector<Value>{});
    };
    return scan(step, in.first(1), {}, {.length = 10}).first;
  };
  const Counts counts = counts_of(vmap(net, {0, 0}), {floats({50, 30, 32}), floats({50, 32, 32})}, {0, 0});
  EXPECT_EQ(counts.dots, 1);
  EXPECT_EQ(counts.strided, 0);
  EXPECT_EQ(counts.copies, (std::vector<int>{1, 0, 0, 0}));
}

// Inner products of many rows with few vectors whose numbers lie apart: these are copied, not gathered for each row.
TEST(CopiedFactors, VectorsOfInnerProductsAreCopied) {
  const auto one = [](Values in) { return std::vector<Value>{tanh(matmul(in[0], in[1]))}; };
  const Counts counts = counts_of(vmap(one, {0, 1}), {floats({40, 50, 64}), floats({64, 40})}, {0, 1});
  EXPECT_EQ(counts.dots, 0);
  EXPECT_EQ(counts.copies, (std::vector<int>{1, 0, 0, 0}));
}

// Columns of one vector become rows of a long sum (NarrowDots), but not where each tile would have to turn all of the other factor for it.
TEST(CopiedFactors, LargeFactorsOfATileStayRows) {
  const Counts counts = counts_of(toeplitz, {floats({16, 256, 256}), floats({16, 256, 16})});
  EXPECT_EQ(counts.copies, (std::vector<int>{1, 0, 0, 0}));
  EXPECT_EQ(counts.copied_bytes, 4 * 256 * 16 * 4);
}

// A matrix that comes with each call is packed where so many rows pass over it that this pays, and for few rows read as it lies, from either side.
TEST(CopiedFactors, MatricesOfACallArePackedForManyRowsAlone) {
  const Function plain = [](Values in) { return std::vector<Value>{matmul(in[0], in[1])}; };
  const Function turned = [](Values in) { return std::vector<Value>{matmul(in[0], transpose(in[1], {1, 0}))}; };
  for (const Function& product : {plain, turned}) {
    for (const std::int64_t rows : {1, 2, 6, 16})
      EXPECT_EQ(counts_of(product, {floats({rows, 256}), floats({256, 256})}).copied_bytes, 0) << rows;
    EXPECT_EQ(counts_of(product, {floats({600, 256}), floats({256, 256})}).before_grids, 1);
  }
}

}  // namespace
}  // namespace hotloop
