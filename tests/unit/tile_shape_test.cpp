// How many rows a tile has.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/ops.h"
#include "hotloop/sorting.h"
#include "hotloop/transforms.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;
using List = std::vector<Value>;

ValueType floats(const std::vector<std::int64_t>& shape) { return {DType::F32, Shape(shape)}; }

// The rows of a tile, of the first grid.
std::int64_t tile_rows_of(const Function& f, const std::vector<ValueType>& types, int num_workers = 1,
                          const kernel::Target& target = kernel::target_named("avx512")) {
  ScheduleOptions options;
  options.num_workers = num_workers;
  options.target = target;
  const auto program = schedule(*passes::optimize(*trace(f, types), {}), options);
  for (const kernel::Stmt& stmt : program.body)
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) return grid->tile_rows;
  return 0;
}

// A recurrent net that trains on data that all of a family share: (input weights, state weights, x of [time, samples, inputs]).
List slopes_of_net(Values in) {
  const auto loss = [](Values in) {
    const auto step = [&](Values h, Values x) {
      const Value next = tanh(matmul(x[0], in[0]) + matmul(h[0], in[1]));
      return std::pair(List{next}, List{mean(square(next))});
    };
    const Value start = constant(0, DType::F32, {32, 64});
    return List{sum(scan(step, List{start}, List{in[2]}).second[0])};
  };
  return value_and_grad(loss, {0, 1})(in);
}

TEST(TileShape, EachNetOfAFamilyIsATile) {
  const auto family = vmap(slopes_of_net, {0, 0, -1});
  for (const std::int64_t nets : {2, 5, 16, 40})
    EXPECT_EQ(tile_rows_of(family, {floats({nets, 20, 64}), floats({nets, 64, 64}), floats({50, 32, 20})}), 1) << nets;
}

TEST(TileShape, SamplesThatShareWeightsGoTogether) {
  const auto states = [](Values in) {
    const auto step = [&](Values h, Values x) {
      const Value next = tanh(matmul(x[0], in[0]) + matmul(h[0], in[1]));
      return std::pair(List{next}, List{next});
    };
    return scan(step, List{constant(0, DType::F32, {32, 64})}, List{in[2]}).second;
  };
  EXPECT_GE(tile_rows_of(states, {floats({20, 64}), floats({64, 64}), floats({50, 32, 20})}), 4);
}

// Chains of 16 states: what a row does at once would hardly fill vectors.
TEST(TileShape, SmallRowsGoTogether) {
  const auto one = [](Values in) {
    const auto step = [&](Values a, Values seen) {
      const Value from = reshape(a[0], {16, 1}) + in[0];
      return std::pair(List{logsumexp(from, 0) + seen[0]}, List{});
    };
    return List{logsumexp(scan(step, List{take(in[1], 0, 0)}, List{in[1]}).first[0], 0)};
  };
  EXPECT_GE(tile_rows_of(vmap(one, {-1, 0}), {floats({16, 16}), floats({32, 60, 16})}), 4);
}

// Rows in tiles of their own agree with the oracle where they sort, and add at places of their own.
TEST(TileShape, ALoneRowSortsAndAddsAtItsPlaces) {
  const auto one = [](Values in) {
    const auto step = [&](Values c, Values) {
      const Value sorted = sort(c[0], 0), at = cast(20.0 * square(tanh(sorted)), DType::I32);
      const Value table = scatter_add(constant(0, DType::F32, {21}), at, sorted, 0);
      return std::pair(List{c[0] * 0.9 + 0.01 * sum(table * table)}, List{table});
    };
    return scan(step, in.first(1), {}, {.length = 3}).second;
  };
  const auto f = vmap(one, {0});
  Array x(DType::F32, {6, 1500});
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>((i * 7919) % 1009) / 500 - 1);
  EXPECT_EQ(tile_rows_of(f, {x.type()}), 1);
  ir::expect_backends_agree(trace(f, std::vector<ValueType>{x.type()}), {x}, 1e-4);
}

// Each tile passes over all of the weights: where these come from memory for each pass, a tile is as many rows as can be.
TEST(TileShape, WeightsThatOnlyMemoryHoldsArePassedOverOnce) {
  const auto product = [](Values in) { return List{matmul(in[0], in[1])}; };
  EXPECT_LT(tile_rows_of(product, {floats({64, 1024}), floats({1024, 1024})}, 4), 32);
  EXPECT_EQ(tile_rows_of(product, {floats({64, 2048}), floats({2048, 2048})}), 64);
  EXPECT_EQ(tile_rows_of(product, {floats({128, 2048}), floats({2048, 2048})}, 2), 64);
  const auto states = [](Values in) {
    const auto step = [&](Values h, Values x) {
      const Value next = tanh(x[0] + matmul(h[0], in[0]));
      return std::pair(List{next}, List{next});
    };
    return scan(step, List{constant(0, DType::F32, {64, 2048})}, List{in[1]}).second;
  };
  EXPECT_EQ(tile_rows_of(states, {floats({2048, 2048}), floats({5, 64, 2048})}), 64);
}

// What only passes over short rows takes as many as are worth beginning a tile for, of long functions fewer, and whole vectors of them.
TEST(TileShape, ShortRowsPassedOnceAreMany) {
  const auto adds = [](Values in) { return List{in[0] + 1.0}; };
  const auto functions = [](Values in) { return List{tanh(in[0]) * exp(in[0])}; };
  const std::vector<ValueType> numbers = {floats({20000})}, points = {floats({20000, 3})};
  for (const auto& [f, types] : {std::pair(Function(adds), numbers), {functions, numbers}, {adds, points}}) {
    const std::int64_t rows = tile_rows_of(f, types);
    EXPECT_GT(rows, 96);
    EXPECT_EQ(rows % 16, 0) << rows;
    EXPECT_EQ(rows, tile_rows_of(f, types, 4)) << "part of the result where rows are summed over";
  }
  EXPECT_LT(2 * tile_rows_of(functions, numbers), tile_rows_of(adds, numbers));
  EXPECT_LE(tile_rows_of(adds, {floats({20000, 100})}), 96) << "a row is long enough";
}

// A product alone cuts itself as the caches want it, whichever factor is transposed; what else a tile does wants its rows near.
TEST(TileShape, AProductAloneTakesManyRows) {
  const auto product = [](Values in) { return List{matmul(in[0], in[1])}; };
  const auto gradient = [](Values in) { return List{matmul(transpose(in[0], {1, 0}), in[1])}; };
  const auto layer = [](Values in) { return List{sum(tanh(matmul(in[0], in[1])), {1})}; };
  const std::vector<ValueType> types = {floats({1024, 1024}), floats({1024, 1024})};
  EXPECT_EQ(tile_rows_of(product, types), 512);
  EXPECT_EQ(tile_rows_of(product, types, 4), 256);
  EXPECT_EQ(tile_rows_of(gradient, types), 512);
  EXPECT_EQ(tile_rows_of(gradient, types, 4), 256);
  EXPECT_LE(tile_rows_of(layer, types), 64);
  EXPECT_LE(tile_rows_of(product, {floats({1024, 64}), floats({64, 64})}), 96) << "weights that stay near";
}

// Weights that leave the second cache join the tiles of a worker; those of a training step only where they come across a mesh, since what is kept for the
// way back is more for many rows.
TEST(TileShape, LargeWeightsJoinTilesWhereTheThirdCacheIsFar) {
  const auto states = [](Values in) {
    const auto step = [&](Values h, Values x) {
      const Value next = tanh(x[0] + matmul(h[0], in[0]));
      return std::pair(List{next}, List{});
    };
    return List{sum(scan(step, List{constant(0, DType::F32, {64, 1024})}, List{in[1]}).first[0], {1})};
  };
  const auto slopes = grad([&](Values in) { return List{sum(states(in)[0])}; }, {0});
  const std::vector<ValueType> types = {floats({1024, 1024}), floats({5, 64, 1024})};
  kernel::Target far = kernel::target_named("avx512"), near = far;
  near.l3_is_near_there = true;
  EXPECT_EQ(tile_rows_of(states, types, 1, far), 64);
  EXPECT_EQ(tile_rows_of(states, types, 1, near), 64);
  EXPECT_EQ(tile_rows_of(slopes, types, 1, far), 64);
  EXPECT_LE(tile_rows_of(slopes, types, 1, near), 32);
}

}  // namespace
}  // namespace hotloop
