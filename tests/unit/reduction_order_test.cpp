// The order in which a reduction adds up follows from the shape alone: lanes along the innermost long axis, be it the last one or not.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

struct Case {
  Shape shape;
  std::vector<std::int64_t> axes;
  std::int64_t along;  // extent of the axis that fills lanes; 1: none is reduced over lanes
};

const std::vector<Case> cases = {
    {{101, 3}, {0, 1}, 101},
    {{3, 101}, {0, 1}, 101},
    {{101, 12, 3}, {0, 1, 2}, 12},
    {{4, 37, 2, 2}, {1, 2, 3}, 37},
    {{40, 1, 5, 1}, {0, 2}, 40},
    {{101, 3}, {0}, 101},
    {{23, 3}, {0}, 1},
    {{101, 5}, {0}, 1},
    {{6, 50, 2, 2}, {1}, 50},
    {{9, 40, 2, 3}, {1, 3}, 40},
    {{40, 3, 5}, {0, 1, 2}, 1},
    {{7, 6}, {0, 1}, 1},
};

TracedFunction total(const Case& c) {
  return [c](Values in) {
    const Value difference = in[0] - in[1];
    return std::vector<Value>{reduce_sum(square(difference), c.axes), reduce_max(difference, c.axes)};
  };
}

std::vector<Array> inputs_for(const Shape& shape, DType dtype) {
  std::vector<Array> inputs = {Array(dtype, shape), Array(dtype, shape)};
  for (std::int64_t i = 0; i < inputs[0].size(); ++i) {
    inputs[0].set(i, static_cast<double>((i * 7919) % 997) / 97 - 4);
    inputs[1].set(i, static_cast<double>((i * 131) % 89) / 31);
  }
  return inputs;
}

TEST(ReductionOrder, LanesRunAlongTheInnermostLongAxis) {
  for (const Case& c : cases) {
    ScheduleOptions options;
    options.target = kernel::target_named("avx512");
    const auto inputs = inputs_for(c.shape, DType::F32);
    const auto program = schedule(*passes::optimize(*trace(total(c), ir::types_of(inputs)), {}), options);
    int num_reductions = 0;
    const auto walk = [&](const auto& self, const kernel::Block& block) -> void {
      for (const kernel::Stmt& stmt : block) {
        if (const auto* single = std::get_if<kernel::Single>(&stmt.node)) self(self, single->body);
        if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) self(self, grid->body);
        const auto* map = std::get_if<kernel::Map>(&stmt.node);
        if (map == nullptr || map->num_outer == static_cast<int>(map->dims.size())) continue;
        ++num_reductions;
        const bool over_lanes = map->vector_dim >= map->num_outer;
        EXPECT_EQ(over_lanes, c.along > 1) << c.shape.str();
        if (over_lanes)
          EXPECT_EQ(map->dims[static_cast<std::size_t>(map->vector_dim)].extent.bound, c.along) << c.shape.str();
      }
    };
    walk(walk, program.body);
    EXPECT_EQ(num_reductions, 1) << c.shape.str();
  }
}

// Neither the largest of a row nor the first place that has it depends on the order, so a contiguous row fills vectors.
TEST(ReductionOrder, ArgmaxRunsAlongContiguousRows) {
  struct Row {
    Shape shape;
    int axis;
    bool over_lanes;
  };
  for (const Row& c : {Row{{80}, 0, true}, Row{{5, 40}, 1, true}, Row{{40, 5}, 0, false}, Row{{5, 7}, 1, false}}) {
    ScheduleOptions options;
    options.target = kernel::target_named("avx512");
    const TracedFunction places = [&](Values in) { return std::vector<Value>{argmax(in[0], c.axis)}; };
    const std::vector<Array> inputs = {inputs_for(c.shape, DType::F32)[0]};
    const auto graph = trace(places, ir::types_of(inputs));
    const std::string text = kernel::print(schedule(*passes::optimize(*graph, {}), options));
    EXPECT_EQ(text.find("reduce vector") != std::string::npos, c.over_lanes) << text;
    CompileOptions interpreted;
    interpreted.backend = "interp";
    const Array got = jit(places)(inputs)[0], expected = compile(graph, interpreted)(inputs)[0];
    for (std::int64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got.at(i), expected.at(i)) << c.shape.str();
  }
}

// A long vector is read once: which block has its extremum is known from those of the blocks.
TEST(ReductionOrder, ArgmaxReadsALongVectorOnce) {
  constexpr std::int64_t n = 10000;
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  for (const DType dtype : {DType::F32, DType::F64, DType::I32, DType::Bool})
    for (const bool largest : {true, false}) {
      const TracedFunction place = [&](Values in) {
        return std::vector<Value>{largest ? argmax(in[0], 0) : argmin(in[0], 0)};
      };
      const auto graph = trace(place, std::vector<ValueType>{{dtype, {n}}});
      const std::string text = kernel::print(schedule(*passes::optimize(*graph, {}), options));
      EXPECT_EQ(text.find("< 10000)"), std::string::npos) << text;
      for (const char* backend : {"llvm", "c"}) {
        CompileOptions compiled;
        compiled.backend = backend;
        const Executable run = compile(graph, compiled);
        // Ties within a block and across blocks, at the ends, and a NaN behind a number that is as large as can be.
        const double end = largest ? 1 : -1, nan = std::numeric_limits<double>::quiet_NaN();
        using Placed = std::vector<std::pair<std::int64_t, double>>;
        for (const Placed& placed : {Placed{},
                                     {{n - 1, 7}},
                                     {{0, 7}},
                                     {{4321, 7}, {4322, 7}, {9000, 7}},
                                     {{77, 9}, {8000, nan}, {8001, nan}}}) {
          Array x(dtype, {n});
          for (std::int64_t i = 0; i < n; ++i)
            x.set(i, dtype == DType::Bool ? (largest ? 0.0 : 1.0) : static_cast<double>(i * 37 % 5) * end);
          std::int64_t wanted = -1;
          for (const auto& [at, value] : placed) {
            if (std::isnan(value) && !is_float(dtype)) continue;
            x.set(at, dtype == DType::Bool ? (largest ? 1.0 : 0.0) : value * end);
            if (wanted < 0 || std::isnan(value)) wanted = wanted >= 0 && std::isnan(x.at(wanted)) ? wanted : at;
          }
          if (wanted < 0) wanted = dtype == DType::Bool ? 0 : 2;
          EXPECT_EQ(run(std::vector<Array>{x})[0].at(0), static_cast<double>(wanted))
              << name_of(dtype) << " " << backend;
        }
      }
    }
}

// Four numbers that are left over fill half a vector of f64: of them its sums have an order of their own, and a statement of their own.
TEST(ReductionOrder, DtypesThatDisagreeStandApart) {
  const Shape shape{50, 4};
  const auto sum = [](Value v) { return reduce_sum(v * v, {0}); };
  const std::vector<Array> inputs = {inputs_for(shape, DType::F32)[0], inputs_for(shape, DType::F64)[1]};
  const auto types = ir::types_of(inputs);
  const auto both = compile(trace([&](Values in) { return std::vector{sum(in[0]), sum(in[1])}; }, types))(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<Array> one = {inputs[i]};
    const Array alone = jit([&](Values in) { return std::vector{sum(in[0])}; })(one)[0];
    EXPECT_EQ(std::memcmp(alone.raw(), both[i].raw(), alone.bytes()), 0) << name_of(inputs[i].dtype());
  }
}

TEST(ReductionOrder, IsTheSameAloneAndInAnyBatch) {
  for (const Case& c : cases) {
    for (const DType dtype : {DType::F32, DType::F64}) {
      const std::vector<Array> all = inputs_for(c.shape.with_inserted(0, 70), dtype);
      const auto whole = vmap(total(c), {0, 0});
      const auto batch = compile(trace(whole, ir::types_of(all)))(all);
      const auto oracle = ir::evaluate(*trace(whole, ir::types_of(all)), all);
      for (std::size_t i = 0; i < batch.size(); ++i)
        EXPECT_TRUE(ir::close(batch[i], oracle[i], dtype == DType::F32 ? 2e-5 : 1e-12)) << c.shape.str();
      std::vector<Array> one;
      for (const Array& a : all) {
        one.emplace_back(dtype, c.shape);
        std::memcpy(one.back().raw(), a.raw(), one.back().bytes());
      }
      for (const char* backend : {"llvm", "c"}) {
        CompileOptions options;
        options.backend = backend;
        const auto alone = compile(trace(total(c), ir::types_of(one)), options)(one);
        for (std::size_t i = 0; i < alone.size(); ++i)
          EXPECT_EQ(std::memcmp(alone[i].raw(), batch[i].raw(), alone[i].bytes()), 0)
              << backend << ' ' << c.shape.str();
      }
    }
  }
}

// What is scattered over a few tables alike goes to one place of each in turn, so that no sum waits for the one before; of each table in the old order.
TEST(ReductionOrder, FewTablesGetTheirUpdatesInTurn) {
  constexpr std::int64_t updates = 40;
  Array at(DType::I32, {updates});
  for (std::int64_t i = 0; i < updates; ++i) at.set(i, static_cast<double>(i < 20 ? 2 : i % 7));
  const auto add = [](Values in) { return std::vector<Value>{scatter_add(in[0], in[1], in[2], 1)}; };
  struct Tables {
    std::int64_t number, places;
    bool in_turn;
  };
  for (const auto& [tables, places, in_turn] :
       {Tables{1, 6, false}, Tables{4, 6, true}, Tables{8, 6, true}, Tables{9, 6, false}, Tables{4, 100000, false}}) {
    std::vector<Array> inputs = {Array::zeros(DType::F32, {tables, places}), at,
                                 inputs_for({tables, updates}, DType::F32)[0]};
    const auto graph = trace(add, ir::types_of(inputs));
    const auto program = schedule(*passes::optimize(*graph, {}), {});
    std::int64_t innermost = 0;
    const auto walk = [&](const auto& self, const kernel::Block& block) -> void {
      for (const kernel::Stmt& stmt : block) {
        if (const auto* single = std::get_if<kernel::Single>(&stmt.node)) self(self, single->body);
        if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) self(self, grid->body);
        if (const auto* map = std::get_if<kernel::Map>(&stmt.node); map != nullptr && map->name == "scatter_add")
          innermost = map->dims.back().extent.bound;
      }
    };
    walk(walk, program.body);
    EXPECT_EQ(innermost, in_turn ? tables : updates) << tables << " tables of " << places;
    const Array together = compile(graph)(inputs)[0];
    for (std::int64_t t = 0; t < tables; ++t) {
      const auto bytes = static_cast<std::size_t>(updates) * sizeof(float);
      std::vector<Array> one = {Array::zeros(DType::F32, {1, places}), at, Array(DType::F32, {1, updates})};
      std::memcpy(one[2].raw(), static_cast<const std::byte*>(inputs[2].raw()) + static_cast<std::size_t>(t) * bytes,
                  bytes);
      const Array alone = compile(trace(add, ir::types_of(one)))(one)[0];
      EXPECT_EQ(std::memcmp(static_cast<const std::byte*>(together.raw()) + static_cast<std::size_t>(t) * alone.bytes(),
                            alone.raw(), alone.bytes()),
                0);
    }
  }
}

}  // namespace
}  // namespace hotloop
