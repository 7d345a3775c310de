// Gradients that a loop adds up for each row of a tile: rows are summed in the loop where they fill vectors, in the same order for tiles of
// one part and of several.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "compiled.h"
#include "hotloop/graph.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "passes/pipeline.h"
#include "schedule/accesses.h"
#include "schedule/schedule.h"
#include "user_cells.h"

namespace hotloop {
namespace {

struct Counts {
  int in_maps = 0;  // sums of rows, by Maps that write the rows as well
  int gathers = 0;  // sums of elements one by one: a[i] = a[i] + v in Maps of rows
};

Counts counts(const kernel::Program& program) {
  using kernel::Instr;
  Counts found;
  kernel::for_each_statement(program.body, [&](const auto& statement) {
    if constexpr (std::is_same_v<std::decay_t<decltype(statement)>, kernel::Map>) {
      const kernel::Map& map = statement;
      const auto at = [&](int i) -> const Instr& { return map.instrs[static_cast<std::size_t>(i)]; };
      bool writes_rows = false;
      int sums = 0;
      for (int i = 0; i < static_cast<int>(map.instrs.size()); ++i) {
        const Instr& it = at(i);
        sums += it.kind == Instr::Kind::Reduced;
        if (it.kind != Instr::Kind::Store || map.dims.size() < 2) continue;
        writes_rows = writes_rows || (i < map.body_end && map.num_outer < static_cast<int>(map.dims.size()));
        const Instr& value = at(it.args[0]);
        if (map.num_outer < static_cast<int>(map.dims.size()) || value.kind != Instr::Kind::Op ||
            value.op != ir::ScalarOp::Add)
          continue;
        for (const int side : {0, 1}) {
          const Instr& before = at(value.args[side]);
          found.gathers += before.kind == Instr::Kind::Load && before.access.buffer == it.access.buffer;
        }
      }
      if (writes_rows) found.in_maps += sums;
    }
  });
  return found;
}

struct Training {
  Training(nn::Layer cell, std::int64_t width, std::int64_t batch, DType dtype = DType::F32)
      : model(std::move(cell), nn::Last(), nn::Linear(width, 1)),
        params(model.init(3, dtype)),
        state(optimizer.init(params)),
        x(testing::normal_array({batch, 9, 5}, dtype, 1)),
        y(testing::normal_array({batch, 1}, dtype, 2)),
        step(train::train_step(model, losses::MSE(), optimizer, params, state, x.type(), y.type())) {}
  nn::Sequential model;
  optim::SGD optimizer{1.0};
  Tree<Array> params, state;
  Array x, y;
  train::Step step;
};

Counts counts(const Training& training, const kernel::Target& target) {
  ScheduleOptions options;
  options.target = target;
  return counts(schedule(*passes::optimize(*training.step.graph(), {}), options));
}
Training layer_norm_lstm(std::int64_t hidden) {
  return {nn::Recurrent(testing::LayerNormLstmCell(5, hidden)), hidden, 48};
}

TEST(RowSums, OfALayerNormLstmAreSummedInItsLoop) {
  for (const std::string target : {"avx512", "avx2", "portable"}) {
    const Counts found = counts(layer_norm_lstm(48), kernel::target_named(target));
    EXPECT_EQ(found.in_maps, 10) << target;  // a gain and a shift of each gate, and of the cell
    EXPECT_EQ(found.gathers, 0) << target;
  }
}

// Vectors that are mostly empty would take longer than whole ones that go on from one row to the next; a block's threads share the points of a Map.
TEST(RowSums, ShortRowsAddElements) {
  const Counts found = counts(layer_norm_lstm(20), kernel::target_named("avx512"));
  EXPECT_EQ(found.in_maps, 0);
  EXPECT_EQ(found.gathers, 10);
  EXPECT_EQ(counts(layer_norm_lstm(48), kernel::cuda_target()).in_maps, 0);
}

class RowSums : public ::testing::TestWithParam<testing::Compiled> {};

// Tiles that are full and that are not, and rows that begin in the middle of a vector.
TEST_P(RowSums, AreWhatTheInterpreterFinds) {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const std::int64_t hidden : {48, 29})
      for (const std::int64_t batch : {23, 64})
        for (const bool has_norm : {false, true}) {
          const nn::Layer cell = has_norm ? nn::Layer(nn::Recurrent(testing::LayerNormLstmCell(5, hidden)))
                                          : nn::Layer(nn::Recurrent(testing::CoupledTwoSpeedCell(5, hidden)));
          const Training training(cell, has_norm ? hidden : 2 * hidden, batch, dtype);
          EXPECT_GT(counts(training, kernel::target_named("avx512")).in_maps, 0) << batch << " rows of " << hidden;
          CompileOptions interp;
          interp.backend = "interp";
          const auto inputs = training.step.arguments(training.params, training.state, training.x, training.y);
          const auto expected = compile(training.step.graph(), interp)(inputs),
                     found = compile(training.step.graph(), GetParam().options())(inputs);
          const double close = dtype == DType::F32 ? 5e-6 : 1e-14;
          for (std::size_t i = 0; i < expected.size(); ++i)
            for (std::int64_t k = 0; k < expected[i].size(); ++k)
              ASSERT_NEAR(found[i].at(k), expected[i].at(k), close * std::max(1.0, std::abs(expected[i].at(k))))
                  << batch << " rows of " << hidden << ", output " << i << " at " << k;
        }
}

INSTANTIATE_TEST_SUITE_P(Backends, RowSums, ::testing::ValuesIn(testing::all_compiled()),
                         [](const auto& tested) { return testing::name_of_case(tested.param); });

}  // namespace
}  // namespace hotloop
