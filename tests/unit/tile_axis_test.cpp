// Which axis is cut into tiles where nobody named the batch.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

// The number of rows that tiles are cut from; 1 where nothing is.
std::int64_t rows_of(const Function& f, const std::vector<ValueType>& types) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  return schedule(*passes::optimize(*trace(f, types), {}), options).max_rows;
}

Value dense(Value x, Value weight) { return matmul(x, transpose(weight, {1, 0})); }

TEST(TileAxis, SamplesOfAPerceptron) {
  const auto loss = [](Values in) { return std::vector<Value>{mean(square(dense(tanh(dense(in[0], in[1])), in[2])))}; };
  EXPECT_EQ(
      rows_of(value_and_grad(loss, {1, 2}), {{DType::F32, {200, 8}}, {DType::F32, {300, 8}}, {DType::F32, {4, 300}}}),
      200)
      << "and not the width, though it is longer";
}

// All pairs of bodies pass through a layer. More work has the axis of the bodies than the width of the layer, which is summed over as well; but pairs have it
// twice, and are not cut.
TEST(TileAxis, BodiesOfWhichAllPairsAreLookedAt) {
  const auto energy = [](Values in) {
    const Value q = in[0];
    const Value pairs = tanh(reshape(q, {40, 1, 16}) - reshape(q, {1, 40, 16}));
    return std::vector<Value>{reduce_sum(dense(tanh(dense(pairs, in[1])), in[2]), {0, 1, 2})};
  };
  const std::vector<ValueType> types{{DType::F32, {40, 16}}, {DType::F32, {32, 16}}, {DType::F32, {1, 32}}};
  EXPECT_EQ(rows_of(value_and_grad(energy, {0, 1, 2}), types), 1);
}

// Samples of a layer whose weight is a chain of small arrays: the outputs of these have as much work along them, but come first in nothing. Of a bilinear form
// the outputs do in their weights, and are not the samples either.
TEST(TileAxis, SamplesOfTensorNetworks) {
  const auto chain = [](Values in) {
    const Value first = dot(in[3], in[0], {.lhs_contract = {1}, .rhs_contract = {0}, .lhs_batch = {}, .rhs_batch = {}});
    const Value second =
        dot(first, in[1], {.lhs_contract = {1, 4}, .rhs_contract = {1, 0}, .lhs_batch = {}, .rhs_batch = {}});
    return std::vector<Value>{
        mean(dot(second, in[2], {.lhs_contract = {1, 4}, .rhs_contract = {1, 0}, .lhs_batch = {}, .rhs_batch = {}}))};
  };
  EXPECT_EQ(
      rows_of(
          chain,
          {{DType::F32, {8, 4, 8}}, {DType::F32, {8, 8, 4, 8}}, {DType::F32, {8, 8, 8}}, {DType::F32, {64, 8, 8, 8}}}),
      64);
  const auto bilinear = [](Values in) {
    const Value left = dot(in[0], in[1], {.lhs_contract = {1}, .rhs_contract = {1}, .lhs_batch = {}, .rhs_batch = {}});
    return std::vector<Value>{
        mean(dot(in[2], left, {.lhs_contract = {1}, .rhs_contract = {2}, .lhs_batch = {0}, .rhs_batch = {0}}))};
  };
  EXPECT_EQ(rows_of(bilinear, {{DType::F32, {128, 32}}, {DType::F32, {16, 32, 32}}, {DType::F32, {128, 32}}}), 128);
}

// Values and derivatives along an input pass through the layers as rows of one product: more rows than the batch has, none of which is the width.
TEST(TileAxis, PointsWhereANetworkIsDifferentiatedByItsInput) {
  const Function point = [](Values in) {
    const auto net = [&](Values x) {
      return std::vector<Value>{sum(matmul(in[2], tanh(matmul(in[1], tanh(matmul(in[0], x[0]))))))};
    };
    const auto along = [&](Values x) { return std::vector<Value>{sum(slice(grad(net, {0})(x)[0], {0}, {1}))}; };
    const Value x[] = {in[3]};
    return std::vector<Value>{net(x)[0] + sum(grad(along, {0})(x)[0])};
  };
  const auto loss = [&](Values in) { return std::vector<Value>{mean(square(vmap(point, {-1, -1, -1, 0})(in)[0]))}; };
  const std::vector<ValueType> types{
      {DType::F32, {32, 2}}, {DType::F32, {32, 32}}, {DType::F32, {1, 32}}, {DType::F32, {1000, 2}}};
  EXPECT_NE(rows_of(value_and_grad(loss, {0, 1, 2}), types), 32);
}

// Where a matrix meets its transpose, rows and columns are one axis. What sums it, or multiplies by it, would be given the squares on its diagonal alone.
TEST(TileAxis, AMatrixAndItsTransposeAreNotCut) {
  const auto sums = [](Values in) {
    const Value both = in[0] + transpose(in[0], {1, 0});
    return std::vector<Value>{reduce_sum(matmul(both, in[1]), {0, 1}) + reduce_sum(sin(both), {0, 1})};
  };
  constexpr std::int64_t n = 100;
  const std::vector<ValueType> types{{DType::F64, {n, n}}, {DType::F64, {n, 4}}};
  EXPECT_EQ(rows_of(sums, types), 1);
  const std::vector<Array> in{Array::full(DType::F64, {n, n}, 0.25), Array::full(DType::F64, {n, 4}, 0.5)};
  EXPECT_NEAR(jit(sums)(in)[0].at(0), n * n * (4 * 0.25 + std::sin(0.5)), 1e-9);
}

// Of a last axis a tile is a stripe of each line: whole cache lines, and two stripes at least, for two workers.
TEST(TileAxis, ColumnsAreCutIntoWholeCacheLines) {
  const auto along_lines = [](Values in) { return std::vector<Value>{softmax(in[0], 0)}; };
  const auto repeated = [](Values in) {
    const Value all[] = {in[0], in[0]};
    return std::vector<Value>{concat(all, 0)};
  };
  const auto in_a_loop = [](Values in) {
    const auto step = [](Values c, Values) { return std::pair{std::vector{softmax(c[0], 0)}, std::vector<Value>{}}; };
    return scan(step, std::vector{in[0]}, {}, {.length = 20}).first;
  };
  for (const Function& f : {Function(along_lines), Function(repeated), Function(in_a_loop)})
    for (const std::int64_t columns : {40, 64, 100, 1000}) {
      ScheduleOptions options;
      options.target = kernel::target_named("avx512");
      const auto graph = passes::optimize(*trace(f, std::vector<ValueType>{{DType::F32, {500, columns}}}), {});
      int grids = 0;
      for (const kernel::Stmt& stmt : schedule(*graph, options).body)
        if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) {
          ++grids;
          EXPECT_EQ(grid->total.bound, columns);
          EXPECT_EQ(grid->tile_rows % 16, 0) << columns << " columns";
          EXPECT_LE(grid->tile_rows, columns / 2) << columns << " columns";
        }
      EXPECT_EQ(grids, 1);
    }
}

// Whether any is not a number, and how large they are: nothing is written of what the extreme alone reads.
TEST(TileAxis, ExtremesOfRowsAreFoundInOnePass) {
  const auto extremes = [](Values in) {
    const Value x = in[0];
    return std::vector<Value>{reduce_max(not_equal(x, x), {0, 1}), reduce_max(abs(x), {0, 1}),
                              reduce_min(cast(x, DType::I32), {0, 1})};
  };
  const std::string kernel = compile(trace(extremes, std::vector<ValueType>{{DType::F32, {100000, 4}}})).kernel_text();
  EXPECT_EQ(kernel.find("grid"), std::string::npos) << kernel;
  EXPECT_EQ(kernel.find("x 400000 shared"), std::string::npos) << kernel;
}

}  // namespace
}  // namespace hotloop
