// Tiles by lanes whose loop has a layer behind it, and the gradient of all: rows fill vectors in the loop, what sums over them reads numbers that lie
// side by side, and what a row gives does not depend on the others.
#include <gtest/gtest.h>

#include <cstring>

#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/accesses.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

constexpr std::int64_t steps = 40, features = 3, hidden = 6;

// (x [rows, steps, features], W, U, biases before and after the normalisation, readout [hidden, outputs]) -> outputs of each step [steps, rows, outputs].
Value normalised_cell(Values in) {
  const std::int64_t rows = in[0].shape()[0];
  const auto step = [&](Values carry, Values x) {
    const Value all = matmul(x[0], in[1]) + matmul(carry[0], in[2]) + in[3];
    const Value centred = all - expand_dims(reduce_sum(all, {1}), 1) / static_cast<double>(hidden);
    const Value variance = expand_dims(reduce_sum(square(centred), {1}), 1) / static_cast<double>(hidden);
    const Value h = tanh(centred / sqrt(variance + 1e-5) + in[4]);
    return std::pair(std::vector<Value>{h}, std::vector<Value>{h});
  };
  const Value start = broadcast(like(in[0], 0), {rows, hidden}, {});
  const auto found = scan(step, std::vector<Value>{start}, std::vector<Value>{transpose(in[0], {1, 0, 2})}).second;
  return matmul(found[0], in[5]);
}

std::vector<Value> loss_and_gradients(Values in) {
  return value_and_grad([](Values v) { return std::vector<Value>{sum(square(normalised_cell(v)))}; },
                        {1, 2, 3, 4, 5})(in);
}

std::vector<Array> inputs_for(std::int64_t rows, std::int64_t outputs, DType dtype) {
  std::vector<Array> inputs;
  for (const Shape& shape : {Shape{rows, steps, features}, Shape{features, hidden}, Shape{hidden, hidden},
                             Shape{hidden}, Shape{hidden}, Shape{hidden, outputs}}) {
    inputs.emplace_back(dtype, shape);
    for (std::int64_t i = 0; i < inputs.back().size(); ++i)
      inputs.back().set(i, static_cast<double>((i * 7919) % 997) / 997 - 0.4);
  }
  return inputs;
}

kernel::Program program_of(const TracedFunction& fn, const std::vector<Array>& inputs) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  return schedule(*passes::optimize(*trace(fn, ir::types_of(inputs)), {}), options);
}

template <class Statement, class F> void for_each(const kernel::Program& program, const F& visit) {
  kernel::for_each_statement(program.body, [&](const auto& statement) {
    if constexpr (std::is_same_v<std::decay_t<decltype(statement)>, Statement>) visit(statement);
  });
}

// The layer behind the loop has the loop's rows as its columns, whose numbers are read as they lie.
TEST(LayerBehindALoop, LeavesItsRowsInVectors) {
  for (const std::int64_t outputs : {1, 5}) {
    const auto program = program_of([](Values in) { return std::vector<Value>{normalised_cell(in)}; },
                                    inputs_for(150, outputs, DType::F32));
    int grids = 0, dots = 0;
    for_each<kernel::Grid>(program, [&](const kernel::Grid& grid) {
      ++grids;
      EXPECT_EQ(grid.tile_rows % 16, 0) << grid.tile_rows;
    });
    for_each<kernel::Dot>(program, [&](const kernel::Dot& dot) {
      ++dots;
      for (const kernel::DotSegment& s : dot.segments) EXPECT_EQ(s.a_m, 1) << dot.name;
    });
    EXPECT_GT(grids, 0);
    EXPECT_EQ(dots, 1);  // those of the loop are expressions
  }
}

// Weights' and biases' gradients: each vector of results would be gathered at each row.
TEST(SumsOverRows, ReadNumbersOfARowSideBySide) {
  const auto program = program_of(loss_and_gradients, inputs_for(150, 1, DType::F32));
  int dots = 0, sums = 0, copies = 0;
  for_each<kernel::Dot>(program, [&](const kernel::Dot& dot) {
    for (const kernel::DotSegment& s : dot.segments) {
      EXPECT_FALSE(s.packed() && dot.c_n != 1) << dot.name << " scatters what it makes of vectors of weights";
      const bool over_rows = std::ranges::any_of(s.k, [](const kernel::KDim& k) { return !k.extent.is_static(); });
      if (!over_rows) continue;
      ++dots;
      EXPECT_TRUE(dot.n == kernel::Extent{1} || s.b_n == 1) << dot.name << " reads columns " << s.b_n << " apart";
    }
  });
  for_each<kernel::Map>(program, [&](const kernel::Map& map) {
    copies += map.name == "copy" && map.dims.size() == 3;
    if (map.num_outer == static_cast<int>(map.dims.size()) || map.vector_dim >= map.num_outer) return;
    const kernel::Dim& lanes = map.dims[static_cast<std::size_t>(map.vector_dim)];
    const bool over_rows = std::ranges::any_of(map.dims, [](const kernel::Dim& d) { return !d.extent.is_static(); });
    const auto reduced = static_cast<int>(map.dims.size()) - map.num_outer;
    if (!over_rows || reduced < 2 || !lanes.extent.is_static() || lanes.extent.bound == 1) return;
    for (int i = 0; i < map.body_end; ++i) {
      const kernel::Instr& instr = map.instrs[static_cast<std::size_t>(i)];
      if (instr.kind != kernel::Instr::Kind::Load) continue;
      ++sums;
      EXPECT_EQ(instr.access.index.coefficient(lanes.var), 1) << map.name;
    }
  });
  EXPECT_EQ(dots, 3);    // of W, U and the readout
  EXPECT_GE(sums, 1);    // of b
  EXPECT_EQ(copies, 2);  // of the states, for the readout; of the gates' gradients, once for W, U and the first bias
}

// Gates of three units are cut out of a product of twelve columns, which fills a vector row by row; the work on a gate is three numbers in sixteen lanes.
TEST(GatesOfFewUnits, FillVectorsWithRows) {
  const auto by_lanes = [](std::int64_t units, std::int64_t rows) {
    const auto fn = [=](Values in) {
      const auto step = [&](Values carry, Values x) {
        const Value all = matmul(x[0], in[1]) + matmul(carry[0], in[2]);
        const auto gate = [&](std::int64_t i) { return sigmoid(narrow(all, 1, i * units, units)); };
        const Value cell = gate(0) * carry[1] + gate(1) * tanh(narrow(all, 1, 2 * units, units));
        const Value h = gate(3) * tanh(cell);
        return std::pair(std::vector{h, cell}, std::vector{h});
      };
      const Value start = broadcast(like(in[0], 0), {rows, units}, {});
      return std::vector{matmul(scan(step, std::vector{start, start}, std::vector{in[0]}).second[0], in[3])};
    };
    std::vector<Array> inputs;
    for (const Shape& shape :
         {Shape{steps, rows, features}, Shape{features, 4 * units}, Shape{units, 4 * units}, Shape{units, 1}}) {
      inputs.emplace_back(DType::F32, shape);
      for (std::int64_t i = 0; i < inputs.back().size(); ++i)
        inputs.back().set(i, static_cast<double>((i * 7919) % 997) / 997 - 0.4);
    }
    ir::expect_backends_agree(trace(fn, ir::types_of(inputs)), inputs, 2e-5);
    bool found = false;
    for_each<kernel::Map>(program_of(fn, inputs), [&](const kernel::Map& map) {
      const kernel::Extent& lanes = map.dims[static_cast<std::size_t>(std::max(map.vector_dim, 0))].extent;
      found = found || (!lanes.is_static() && lanes.bound % 16 == 0);
    });
    return found;
  };
  EXPECT_TRUE(by_lanes(3, 100));
  EXPECT_FALSE(by_lanes(12, 100));
  EXPECT_FALSE(by_lanes(3, 5));  // eleven lanes would be empty, too
}

TEST(SumsOverRows, AgreeWithTheOracle) {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const std::int64_t outputs : {1, 5}) {
      const auto inputs = inputs_for(37, outputs, dtype);
      const auto graph = trace(loss_and_gradients, ir::types_of(inputs));
      ir::expect_backends_agree(graph, inputs, dtype == DType::F32 ? 2e-4 : 1e-11);
    }
}

TEST(LayerBehindALoop, ARowHasTheSameBitsAloneAndInAnyBatch) {
  const auto fn = [](Values in) { return std::vector<Value>{normalised_cell(in)}; };
  for (const DType dtype : {DType::F32, DType::F64})
    for (const std::int64_t outputs : {1, 5}) {
      const auto all = inputs_for(150, outputs, dtype);
      const Array whole = compile(trace(fn, ir::types_of(all)))(all)[0];
      for (const std::int64_t rows : {1, 7, 16}) {
        const auto few = inputs_for(rows, outputs, dtype);
        const Array part = compile(trace(fn, ir::types_of(few)))(few)[0];
        for (std::int64_t t = 0; t < steps; ++t)
          for (std::int64_t i = 0; i < rows * outputs; ++i)
            ASSERT_EQ(part.at(t * rows * outputs + i), whole.at(t * 150 * outputs + i))
                << rows << " rows, step " << t << ", number " << i;
      }
    }
}

}  // namespace
}  // namespace hotloop
