// Which dots become inner products, whose lanes run along k: few outputs a sample, and factors whose numbers lie side by side along k.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

struct InnerProducts {
  int along_rows = 0, gathered = 0;
};

std::int64_t step_of(const kernel::Access& access, kernel::Var var) {
  for (const kernel::Term& term : access.index.terms)
    if (term.var == var) return term.coefficient;
  return 0;
}

void count(const kernel::Block& block, InnerProducts& counts) {
  for (const kernel::Stmt& stmt : block) {
    if (const auto* single = std::get_if<kernel::Single>(&stmt.node)) count(single->body, counts);
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) count(grid->body, counts);
    if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) count(loop->body, counts);
    const auto* map = std::get_if<kernel::Map>(&stmt.node);
    if (map == nullptr || map->name != "inner_products") continue;
    const kernel::Var k = map->dims[static_cast<std::size_t>(map->vector_dim)].var;
    const bool side_by_side = std::ranges::all_of(map->instrs, [&](const kernel::Instr& in) {
      return in.kind != kernel::Instr::Kind::Load || step_of(in.access, k) == 1;
    });
    ++(side_by_side ? counts.along_rows : counts.gathered);
  }
}

InnerProducts counts_of(const Function& f, const std::vector<ValueType>& types) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  InnerProducts counts;
  count(schedule(*passes::optimize(*trace(f, types), {}), options).body, counts);
  return counts;
}

// The loss of a perceptron with four inputs and one output, and its gradients by both weights.
Function loss_and_gradients() {
  return value_and_grad(
      [](Values in) {
        const Value h = tanh(matmul(in[2], transpose(in[0], {1, 0})));
        const Value difference = matmul(h, transpose(in[1], {1, 0})) - in[3];
        return std::vector<Value>{mean(difference * difference)};
      },
      {0, 1});
}

// Four inputs look like four outputs of the gradient, but its sum over the samples has numbers far apart.
TEST(NarrowDots, SumsOverSamplesAreDots) {
  const ValueType first{DType::F32, {32, 4}}, second{DType::F32, {1, 32}}, x{DType::F32, {200, 4}},
      y{DType::F32, {200, 1}};
  EXPECT_EQ(counts_of(loss_and_gradients(), {first, second, x, y}).gathered, 0);
  const ValueType first_of_each{DType::F32, {50, 32, 4}}, second_of_each{DType::F32, {50, 1, 32}};
  EXPECT_EQ(counts_of(vmap(loss_and_gradients(), {0, 0, -1, -1}), {first_of_each, second_of_each, x, y}).gathered, 0);
}

// A matrix that is the same in every step of a loop and multiplies a vector from the right, as on the way back through a layer, is laid out anew before it.
TEST(NarrowDots, KeptMatricesTimesVectorsAreInnerProducts) {
  const auto steps = [](Values in) {
    const Value w = in[1];
    const auto step = [&](Values h, Values) {
      const Value g = tanh(matmul(w, h[0]));  // (100)
      return std::pair(std::vector<Value>{tanh(matmul(transpose(w, {1, 0}), g))}, std::vector<Value>{});
    };
    return scan(step, in.first(1), {}, {.length = 10}).first;
  };
  const InnerProducts counts = counts_of(steps, {{DType::F32, {3}}, {DType::F32, {100, 3}}});
  EXPECT_EQ(counts.along_rows, 1);
  EXPECT_EQ(counts.gathered, 0);
}

// Sixteen numbers fill one vector: a filter of so many taps is no chain of sixteen additions.
TEST(NarrowDots, OneOutputOfOneVectorIsAnInnerProduct) {
  const auto taps = [](Values in) { return std::vector<Value>{tanh(matmul(in[0], in[1]))}; };
  const InnerProducts one = counts_of(taps, {{DType::F32, {16}}, {DType::F32, {16}}}),
                      shorter = counts_of(taps, {{DType::F32, {15}}, {DType::F32, {15}}});
  EXPECT_EQ(one.along_rows, 1);
  EXPECT_EQ(shorter.along_rows, 0);
}

// The head of each net of an ensemble has one output a row, as that of a net alone.
TEST(NarrowDots, HeadsOfEnsemblesAreInnerProducts) {
  const auto head = [](Values in) { return std::vector<Value>{matmul(in[0], transpose(in[1], {1, 0}))}; };
  const ValueType h{DType::F32, {50, 200, 32}}, w{DType::F32, {50, 1, 32}};
  const InnerProducts counts = counts_of(vmap(head, {0, 0}), {h, w});
  EXPECT_EQ(counts.along_rows, 1);
  EXPECT_EQ(counts.gathered, 0);
}

void collect_dots(const kernel::Block& block, std::vector<kernel::Dot>& dots) {
  for (const kernel::Stmt& stmt : block) {
    if (const auto* single = std::get_if<kernel::Single>(&stmt.node)) collect_dots(single->body, dots);
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) collect_dots(grid->body, dots);
    if (const auto* dot = std::get_if<kernel::Dot>(&stmt.node)) dots.push_back(*dot);
  }
}

// The gradient of a weight whose inputs fill one vector: as its columns these would be fetched for one multiplication each. A shorter sum does not pay
// for a result that lies turned, and columns of two vectors lose nothing.
TEST(NarrowDots, ColumnsOfOneVectorBecomeRowsOfLongSums) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    const std::int64_t lanes = kernel::lanes_of(dtype);
    const auto columns_of = [&](std::int64_t inputs, std::int64_t samples) {
      ScheduleOptions options;
      options.target = kernel::target_named("avx512");
      const std::vector<ValueType> types{
          {dtype, {128, inputs}}, {dtype, {1, 128}}, {dtype, {samples, inputs}}, {dtype, {samples, 1}}};
      std::vector<kernel::Dot> dots;
      collect_dots(schedule(*passes::optimize(*trace(loss_and_gradients(), types), {}), options).body, dots);
      std::int64_t columns = 0;  // of the last product of 128 by the inputs: the way back is behind the way there
      for (const kernel::Dot& dot : dots)
        if (dot.m.bound * dot.n.bound == 128 * inputs) columns = dot.n.bound;
      return columns;
    };
    EXPECT_EQ(columns_of(lanes, 256), 128);
    EXPECT_EQ(columns_of(lanes, 64), lanes);
    EXPECT_EQ(columns_of(2 * lanes, 256), 2 * lanes);
  }
}

}  // namespace
}  // namespace hotloop
