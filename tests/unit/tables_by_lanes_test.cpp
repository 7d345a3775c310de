// Tables filled number by number, each from its neighbours (alignments, filters, elimination along a line): rows of the batch fill vectors, long rows of a
// sample lie with those of the other samples side by side, and results are those of one sample alone.
#include <gtest/gtest.h>

#include <cstring>

#include "compiled.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;
using List = std::vector<Value>;

constexpr std::int64_t lines = 5, columns = 21;

// Of one sample's [lines, columns].
struct Table {
  std::string name;
  std::function<Value(Value)> of;
};
void PrintTo(const Table& t, std::ostream* out) { *out << t.name; }

Value tail(Value row) { return narrow(row, 0, 1, row.shape()[0] - 1); }
Value but_last(Value row) { return narrow(row, 0, 0, row.shape()[0] - 1); }
Value led_by(Value first, Value row) { return concat(List{reshape(first, {1}), row}, 0); }
Value number(double x, Value like) { return constant(x, like.dtype()); }

Value filled(Value costs, const std::function<Value(Value cost, Value left, Value up, Value diagonal)>& cell) {
  const auto line = [&](Values above, Values x) {
    const auto step = [&](Values left, Values in) {
      const Value v = cell(in[0], left[0], in[1], in[2]);
      return std::pair(List{v}, List{v});
    };
    const List start = {number(0.5, costs)};
    const Value row = scan(step, start, List{x[0], tail(above[0]), but_last(above[0])}).second[0];
    return std::pair(List{led_by(start[0], row)}, List{});
  };
  const List first = {led_by(number(0, costs), number(0.1, costs) * take(costs, 0, 0))};
  return scan(line, first, List{costs}).first[0];
}

// The last column, weighted sums of whole rows, and the place of the largest number.
Value summary(Value row) {
  const Value e = exp(row - reduce_max(row, {0}));
  return take(row, 0, -1) + sum(row * e) / sum(e) + 0.01 * cast(argmax(row, 0), row.dtype());
}

std::vector<Table> tables() {
  return {
      {"alignment",
       [](Value x) {
         return summary(filled(x, [](Value cost, Value left, Value up, Value diagonal) {
           return cost - 0.3 * logsumexp(stack(List{-left, -up, -diagonal}, 0), 0);
         }));
       }},
      {"distance",
       [](Value x) {
         return summary(filled(x, [](Value cost, Value left, Value up, Value diagonal) {
           return minimum(minimum(left, up) + 0.2, diagonal + cost);
         }));
       }},
      {"running",
       [](Value x) {
         const auto line = [&](Values above, Values in) {
           const auto step = [&](Values c, Values v) {
             const Value next = tanh(0.9 * c[0] + v[0]) + v[1];
             return std::pair(List{next}, List{next});
           };
           const Value row = scan(step, List{number(0, x)}, List{above[0], in[0]}, {.reverse = true}).second[0];
           return std::pair(List{row}, List{sum(row)});
         };
         const auto [last, sums] = scan(line, List{0.5 * take(x, 0, 1)}, List{x});
         return summary(last[0]) + sum(sums[0]);
       }},
      {"elimination",
       [](Value x) {
         const auto line = [&](Values u, Values) {
           const auto down = [&](Values c, Values v) {
             const Value m = 1.0 / (1.6 + 0.3 * c[0]);
             const List next = {-0.3 * m, (v[0] + 0.3 * c[1]) * m};
             return std::pair(next, next);
           };
           const auto up = [](Values c, Values v) {
             const Value next = v[1] - v[0] * c[0];
             return std::pair(List{next}, List{next});
           };
           const List factors = scan(down, List{number(0, x), number(0, x)}, List{u[0]}).second;
           return std::pair(scan(up, List{number(0, x)}, factors, {.reverse = true}).second, List{});
         };
         return summary(scan(line, List{take(x, 0, 0)}, {}, {.length = 4}).first[0]);
       }},
  };
}

TracedFunction batched(const Table& t) {
  return vmap([&t](Values in) { return List{t.of(in[0])}; }, {0});
}
TracedFunction with_gradient(const Table& t) {
  return value_and_grad([&t](Values in) { return List{sum(batched(t)(in)[0])}; }, {0});
}

std::vector<Array> inputs_for(std::int64_t rows, DType dtype) {
  Array x(dtype, {rows, lines, columns});
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>((i * 7919) % 997) / 997 - 0.2);
  return {x};
}

class Tables : public ::testing::TestWithParam<Table> {};

TEST_P(Tables, AgreeWithTheOracle) {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const auto& fn : {batched(GetParam()), with_gradient(GetParam())}) {
      const auto inputs = inputs_for(37, dtype);
      ir::expect_backends_agree(trace(fn, ir::types_of(inputs)), inputs, dtype == DType::F32 ? 1e-4 : 1e-11);
    }
}

TEST_P(Tables, ASampleHasTheSameBitsAloneAndInAnyBatch) {
  const auto fn = batched(GetParam());
  for (const DType dtype : {DType::F32, DType::F64}) {
    const auto all = inputs_for(150, dtype);
    const auto whole = compile(trace(fn, ir::types_of(all)))(all);
    for (const std::string& target : kernel::runnable_targets())
      for (const std::int64_t rows : {1, 7, 40}) {
        if (target == "portable") continue;  // without fma it has bits of its own
        CompileOptions options;
        options.target = target;
        const auto few = inputs_for(rows, dtype);
        const auto part = compile(trace(fn, ir::types_of(few)), options)(few);
        EXPECT_EQ(std::memcmp(part[0].raw(), whole[0].raw(), part[0].bytes()), 0) << target << ", " << rows << " rows";
      }
  }
}

// Counts what statements inside loops move to or from places that lie apart for neighbouring lanes.
struct Accesses {
  int side_by_side = 0, apart = 0;

  void walk(const kernel::Block& block, bool in_loop) {
    for (const kernel::Stmt& stmt : block) {
      if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) walk(loop->body, true);
      if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) walk(grid->body, in_loop);
      const auto* map = std::get_if<kernel::Map>(&stmt.node);
      if (map == nullptr || !in_loop || map->vector_dim < 0 || map->vector_dim >= map->num_outer) continue;
      const kernel::Var lane = map->dims[static_cast<std::size_t>(map->vector_dim)].var;
      for (const kernel::Instr& instr : map->instrs) {
        if (instr.kind != kernel::Instr::Kind::Load && instr.kind != kernel::Instr::Kind::Store) continue;
        const std::int64_t step = instr.access.index.coefficient(lane);
        side_by_side += step == 1;
        apart += step != 0 && step != 1;
      }
    }
  }
};

TEST_P(Tables, LieWithSamplesSideBySide) {
  for (const auto& fn : {batched(GetParam()), with_gradient(GetParam())}) {
    ScheduleOptions options;
    options.target = kernel::target_named("avx512");
    const auto program =
        schedule(*passes::optimize(*trace(fn, ir::types_of(inputs_for(150, DType::F32))), {}), options);
    Accesses a;
    a.walk(program.body, false);
    EXPECT_GT(a.side_by_side, 0);
    EXPECT_EQ(a.apart, 0);
  }
}

// Numbers added to a table of each sample's own, which lies by itself: one sample after the other, not one number of each, gathered and scattered.
TEST(TablesOfSamples, NumbersAreAddedToOneSamplesTableAfterTheOther) {
  const auto fn = vmap(
      [](Values in) {
        const Value none = constant(0, in[0].dtype(), {50});
        return List{scatter_add(none, in[1], in[0], 0)};
      },
      {0, 0});
  for (const std::int64_t rows : {4, 16, 37}) {
    Array at(DType::I32, {rows, 200}), x(DType::F32, {rows, 200});
    for (std::int64_t i = 0; i < at.size(); ++i) {
      at.set(i, static_cast<double>((i * 7919) % 50));
      x.set(i, static_cast<double>((i * 31) % 17) / 17 - 0.4);
    }
    const std::vector<Array> inputs = {x, at};
    const auto graph = trace(fn, ir::types_of(inputs));
    ir::expect_backends_agree(graph, inputs, 1e-5);
    ScheduleOptions options;
    options.target = kernel::target_named("avx512");
    Accesses a;
    a.walk(schedule(*passes::optimize(*graph, {}), options).body, false);
    EXPECT_EQ(a.apart, 0) << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Tables, ::testing::ValuesIn(tables()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hotloop
