// Views that show rows of other tiles than their operand's: slices, reversals, windows and reshapes along the batch.
#include <gtest/gtest.h>

#include <cmath>

#include "compiled.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "op_checks.h"

namespace hotloop {
namespace {

// A carry that becomes a view, here of a slice, lies in memory of its own. What reads the view in the same iteration must not read that
// memory before it is written.
TEST(Views, ACarryThatIsAViewIsReadInTheSameIteration) {
  const auto fn = [](std::span<const Value> in) {
    const Value ends = in[0], heights = in[1];
    return while_loop(
        [](std::span<const Value> c) { return less(c[0], constant(8, DType::I32)); },
        [&](std::span<const Value> c) {
          const Value starts[] = {c[0]};
          const Value end = reshape(dynamic_slice(ends, starts, {1}), {}), middle = 0.5 * (c[1] + end);
          const Value index = sum(cast(less(ends, middle), DType::I32));
          return std::vector<Value>{c[0] + 1, end, c[2] + (end - c[1]) * gather(heights, index, 0) * middle};
        },
        std::vector<Value>{constant(0, DType::I32), like(ends, 0), like(ends, 0)}, 20);
  };
  std::vector<double> ends, heights;
  for (int i = 0; i < 8; ++i) {
    ends.push_back(0.1 * (i + 1) * (i + 1));
    heights.push_back(1 + i * i);
  }
  const std::vector<Array> inputs = {Array::from(ends, {8}), Array::from(heights, {8})};
  const auto graph = trace(fn, std::vector{inputs[0].type(), inputs[1].type()});
  const auto oracle = ir::evaluate(*graph, inputs);
  for (const char* backend : {"llvm", "c"}) {
    CompileOptions options;
    options.backend = backend;
    EXPECT_NEAR(compile(graph, options)(inputs)[2].at(0) / oracle[2].at(0), 1, 1e-14) << backend;
  }
}

using Values = std::span<const Value>;

// A population whose members all move by what its first one, or their mirror image, was. Each tile computes the new state of its own rows, and others
// still read the old one.
TEST(Views, ACarryIsOverwrittenWhenNoOtherTileReadsIt) {
  const auto moved = [](bool mirrored) {
    return [mirrored](Values v) -> std::vector<Value> {
      const auto step = [&](Values c, Values) {
        const Value h = c[0], other = mirrored ? reverse(h, {0}) : broadcast_to(narrow(h, 0, 0, 1), h.shape());
        return std::pair{std::vector<Value>{tanh(matmul(h * 0.5 + other, v[1]))}, std::vector<Value>{sum(h, {1})}};
      };
      auto [state, sums] = scan(step, v.first(1), {}, {.length = 4});
      state.insert(state.end(), sums.begin(), sums.end());
      return state;
    };
  };
  std::vector<Array> inputs = {Array(DType::F64, {300, 16}), Array(DType::F64, {16, 16})};
  double angle = 0.3;
  for (Array& a : inputs)
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, std::sin(angle += 0.7));
  for (const bool mirrored : {false, true}) {
    const auto graph = trace(moved(mirrored), std::vector{inputs[0].type(), inputs[1].type()});
    const auto wanted = ir::evaluate(*graph, inputs);
    for (const int threads : {1, 2}) {
      CompileOptions options;
      options.threads = threads;
      const auto got = compile(graph, options)(inputs);
      for (std::size_t k = 0; k < got.size(); ++k)
        for (std::int64_t i = 0; i < got[k].size(); ++i)
          ASSERT_NEAR(got[k].at(i), wanted[k].at(i), 1e-12) << mirrored << " output " << k << ", element " << i;
    }
  }
}

// The product contracts an axis of `b` with one that the scan runs along, so that both axes of `b` are cut into tiles.
TEST(Views, ASliceOfAValueThatRunsWithTheTilesOnBothAxes) {
  const auto fn = [](Values v) {
    const Value a = v[0], b = v[1], init[] = {v[2]}, xs[] = {matmul(a, b)};
    const std::int64_t n = b.shape()[0];
    const Value parts[] = {narrow(b, 0, n / 2, n - n / 2), narrow(b, 0, 0, n / 2)};
    const Value last = scan(
                           [&](Values c, Values x) {
                             return std::pair{std::vector<Value>{c[0] * 0.5 + a * broadcast_to(x[0], a.shape())},
                                              std::vector<Value>{}};
                           },
                           init, xs)
                           .first[0];
    return std::vector<Value>{concat(parts, 0), last};
  };
  for (const std::int64_t n : {4, 6, 12, 40}) {
    std::vector<Array> inputs(3, Array(DType::F64, {n, n}));
    for (int k = 0; k < 3; ++k) {
      inputs[static_cast<std::size_t>(k)] = Array(DType::F64, {n, n});
      for (std::int64_t i = 0; i < n * n; ++i)
        inputs[static_cast<std::size_t>(k)].set(i, 0.01 * static_cast<double>((i * 7 + k) % 23 - 11));
    }
    const auto graph = trace(fn, std::vector<ValueType>(3, inputs[0].type()));
    const auto oracle = ir::evaluate(*graph, inputs), got = compile(graph)(inputs);
    for (std::size_t k = 0; k < oracle.size(); ++k)
      EXPECT_TRUE(ir::close(got[k], oracle[k], 1e-12)) << "output " << k << " of size " << n;
  }
}

// Inputs: x[200, 3] and w[3, 40], from which rows of a tile are computed, and what the view is of.
struct Case {
  std::string name;
  std::function<Value(Values)> view;  // to be read where x's rows are
  Shape of;
  Shape shape = {200, 3};
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  return {
      {"reshape",
       [](Values v) {
         return reshape(v[2], {200, 3});
       },
       {600}},
      {"reshape_from_middle",
       [](Values v) {
         return reshape(v[2], {200, 3});
       },
       {20, 30}},
      {"slice", [](Values v) { return narrow(v[2], 0, 17, 200); }, {400, 3}},
      {"strided_slice",
       [](Values v) {
         return slice(v[2], {1, 0}, {401, 3}, {2, 1});
       },
       {402, 3}},
      {"reverse", [](Values v) { return reverse(v[2], {0}); }, {200, 3}},
      {"windows", [](Values v) { return windows(v[2], 0, 3); }, {202}},
      {"transposed_slice",
       [](Values v) {
         return transpose(narrow(v[2], 1, 5, 200), {1, 0});
       },
       {3, 230}},
      // Of rows that are computed in tiles themselves.
      {"reverse_of_computed", [](Values v) { return reverse(tanh(matmul(v[0], v[1])), {0}); }, {1}, {200, 40}},
      {"slice_of_computed",
       [](Values v) {
         const Value y = tanh(matmul(v[0], v[1])), parts[] = {narrow(y, 0, 150, 50), narrow(y, 0, 0, 150)};
         return concat(parts, 0);
       },
       {1},
       {200, 40}},
      // Axes merged in an order that no strides show, and read at places that rows compute.
      {"gather_of_merged_columns",
       [](Values v) {
         const Value rows = transpose(v[2], {1, 0});
         return gather(reshape(rows, {600}), cast(200.0 * rows, DType::I32), 0);
       },
       {3, 200}},
      {"gather_of_merged_computed",
       [](Values v) {
         const Value y = tanh(matmul(v[0], v[1]));
         return gather(reshape(transpose(y, {1, 0}), {8000}), cast(4000.0 * (y + 1.0), DType::I32), 0);
       },
       {1},
       {200, 40}},
      // Of a product that nothing else reads, at places of each row's own: the product belongs to no later tile than the places do.
      {"gather_of_merged_product",
       [](Values v) {
         const Value product = matmul(v[0], v[1]), place = argmax(matmul(sin(v[0]), v[1]), 1);
         const Value rows = iota(DType::I32, {200}, 0) * 40;
         return broadcast(gather(reshape(product, {8000}), rows + cast(place, DType::I32), 0), {200, 40}, {0});
       },
       {1},
       {200, 40}},
      {"first_rows",
       [](Values v) {
         return broadcast(reshape(narrow(tanh(v[0]), 0, 7, 1), {3}), {200, 3}, {1});
       },
       {1}}};
}

class TileViews : public ::testing::TestWithParam<Case> {};

TEST_P(TileViews, ReadTheRightRows) {
  const Case& c = GetParam();
  const std::vector<ValueType> types{
      {DType::F64, {200, 3}}, {DType::F64, {3, 40}}, {DType::F64, c.of}, {DType::F64, c.shape}};
  const auto graph = trace(
      [&](Values v) {
        const Value rows = matmul(v[0], v[1]), view = c.view(v);
        std::vector<Value> outputs{tanh(rows), exp(v[3]) * view};
        if (c.shape[1] == 3) outputs.push_back(rows + matmul(view, v[1]));
        return outputs;
      },
      types);
  std::vector<Array> inputs;
  double angle = 0.1;
  for (const ValueType& t : types) {
    Array a(t.dtype, t.shape);
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, std::sin(angle += 0.7));
    inputs.push_back(a);
  }
  const auto wanted = ir::evaluate(*graph, inputs);
  for (const auto& compiled : testing::llvm_targets()) {
    SCOPED_TRACE(compiled.target);
    const auto got = compile(graph, compiled.options())(inputs);
    for (std::size_t k = 0; k < got.size(); ++k)
      for (std::int64_t i = 0; i < got[k].size(); ++i)
        ASSERT_NEAR(got[k].at(i), wanted[k].at(i), 1e-12) << "output " << k << ", element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TileViews, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hotloop
