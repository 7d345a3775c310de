// Loops over rows of a few numbers: rows fill vectors, whichever way the state was written, and results are those of one row alone.
#include <gtest/gtest.h>

#include <cstring>

#include "hotloop/jit.h"
#include "hotloop/linalg.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "ode_problems.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/accesses.h"
#include "schedule/schedule.h"
#include "targets.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;
using Step = std::function<Value(Value)>;  // of one sample's state

// Each keeps numbers within about one.
struct Case {
  std::string name;
  Shape state;
  Step step;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Value at(Value x, int i) { return take(x, 0, i); }
Value stacked(const std::vector<Value>& parts) { return stack(parts, 0); }
Value row_of(Value x, std::int64_t i) { return narrow(x, 0, i, 1); }

std::vector<Case> cases() {
  return {
      {"pair",
       {2},
       [](Value y) {
         return y + 0.1 * stacked({at(y, 1), -at(y, 0)});
       }},
      {"lorenz",
       {3},
       [](Value y) {
         const Value a = at(y, 0), b = at(y, 1), c = at(y, 2);
         return y + 0.01 * stacked({10 * (b - a), a * (20 - c) - b, a * b - 8.0 / 3 * c});
       }},
      {"normalised", {4}, [](Value y) { return reverse(y, {0}) / sqrt(1.0 + sum(square(y))); }},
      {"softmax_of_five",
       {5},
       [](Value y) {
         const Value e = exp(y - reduce_max(y, {0}));
         return 0.5 * y + e / sum(e);
       }},
      {"ring_of_eight",
       {8},
       [](Value y) {
         const Value next = concat(std::vector<Value>{narrow(y, 0, 1, 7), narrow(y, 0, 0, 1)}, 0);
         return 0.9 * y + 0.05 * next + 0.01 * sum(y);
       }},
      {"eight_pairs", {8, 2}, [](Value y) { return 0.9 * reverse(y, {0}) + 0.02 * sum(y); }},
      {"rotation",
       {3, 3},
       [](Value y) {
         const Value turned = transpose(y, {1, 0});
         const Value first = reshape(narrow(y, 0, 0, 1), {3, 1});
         return 0.5 * (y - turned) + 0.3 * first * row_of(turned, 1) + 0.1 * expand_dims(reduce_sum(y, {1}), 1);
       }},
      {"reshaped",
       {2, 3},
       [](Value y) {
         return 0.9 * reshape(transpose(reshape(y, {3, 2}), {1, 0}), {2, 3}) + expand_dims(reduce_prod(y, {0}), 0);
       }},
      {"linear",
       {3},
       [](Value y) {
         const Value a = constant(
             Array::from(std::vector<double>{0, -1, 0.5, 1, 0, -0.5, -0.5, 0.5, -0.1}, {3, 3}).cast(y.dtype()));
         return y + 0.1 * matmul(a, y);
       }},
      {"products",
       {3, 3},
       [](Value y) {
         return 0.5 * y + 0.2 * matmul(y, transpose(y, {1, 0})) - 0.1 * matmul(y, y);
       }},
      {"softmax_of_eleven",
       {11},
       [](Value y) {
         const Value e = exp(y - reduce_max(y, {0}));
         return 0.5 * y + e / sum(e);
       }},
      {"sums_of_rows",
       {3, 13},
       [](Value y) {
         return 0.4 * y + 0.01 * sum(y) - 0.1 * expand_dims(reduce_sum(y, {1}), 1) * reduce_prod(y, {0, 1});
       }},
      {"sums_along_the_first",
       {14, 2},
       [](Value y) {
         return 0.6 * reverse(y, {0}) + 0.01 * reduce_sum(y, {0, 1}) + 0.1 * reduce_max(y, {0});
       }},
      {"ring_of_sixteen",
       {16},
       [](Value y) {
         const Value next = concat(std::vector<Value>{narrow(y, 0, 1, 15), narrow(y, 0, 0, 1)}, 0);
         return 0.9 * y + 0.05 * next * (1.0 - y * y);
       }},
      {"matrix_of_ten",
       {10, 10},
       [](Value y) {
         return 0.8 * transpose(y, {1, 0}) + 0.02 * expand_dims(take(y, 0, 9), 1) * row_of(y, 1);
       }},
      {"weights_and_a_matrix",
       {6, 6},
       [](Value y) {
         Array weights = Array::zeros(y.dtype(), {6, 6});
         for (std::int64_t i = 0; i < 36; ++i) weights.set(i, static_cast<double>(i * 5 % 7) / 7 - 0.4);
         return 0.5 * y + 0.1 * matmul(constant(weights), y);
       }},
      {"matrix_of_five",
       {5, 5},
       [](Value y) {
         return 0.6 * y - 0.1 * transpose(y, {1, 0}) + 0.02 * expand_dims(reduce_sum(square(y), {1}), 0);
       }},
      {"rotation_of_seven",
       {7, 7},
       [](Value y) {
         return 0.5 * reverse(y, {0}) + 0.2 * expand_dims(take(y, 1, 3), 1) * row_of(y, 2) + 0.01 * sum(y);
       }},
      {"products_of_eight",
       {8, 8},
       [](Value y) {
         return 0.5 * y + 0.02 * matmul(y, transpose(y, {1, 0})) - 0.01 * matmul(y, y);
       }},
      {"padded",
       {6},
       [](Value y) {
         return 0.5 * y + pad(narrow(0.5 * y * sum(y), 0, 2, 3), constant(0.1, y.dtype()), {1}, {2}, {0});
       }},
  };
}

// Twelve steps of each row of the state, and the row's number of them by a rule of its own: (y0 [N, ...], limit [N]) -> y, sums, counts.
std::vector<Value> run(const Case& c, Values in) {
  const auto fn = [&](Values v) {
    const auto out = while_loop(
        [&](Values s) { return bit_and(less(s[1], constant(12, DType::I32)), less(cast(s[1], v[1].dtype()), v[1])); },
        [&](Values s) {
          return std::vector<Value>{c.step(s[0]) + 0.001 * v[0], s[1] + 1, s[2] + sum(s[0])};
        },
        std::vector<Value>{v[0], constant(0, DType::I32), constant(0, v[0].dtype())}, 20);
    return out;
  };
  return vmap(fn, {0, 0})(in);
}

std::vector<Array> inputs_for(const Case& c, std::int64_t rows, DType dtype) {
  Array y(dtype, c.state.with_inserted(0, rows)), limit(dtype, {rows});
  for (std::int64_t i = 0; i < y.size(); ++i) y.set(i, static_cast<double>((i * 7919) % 997) / 997 - 0.4);
  for (std::int64_t i = 0; i < rows; ++i) limit.set(i, static_cast<double>(i * 31 % 14));
  return {y, limit};
}

class ShortRows : public ::testing::TestWithParam<Case> {};

TEST_P(ShortRows, AgreeWithTheOracle) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    const auto inputs = inputs_for(GetParam(), 37, dtype);
    const auto graph = trace([&](Values in) { return run(GetParam(), in); }, ir::types_of(inputs));
    ir::expect_backends_agree(graph, inputs, dtype == DType::F32 ? 2e-5 : 1e-12);
  }
}

TEST_P(ShortRows, ARowHasTheSameBitsAloneAndInAnyBatch) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    const auto fn = [&](Values in) { return run(GetParam(), in); };
    const auto all = inputs_for(GetParam(), 150, dtype);
    const auto whole = compile(trace(fn, ir::types_of(all)))(all);
    for (const std::int64_t rows : {1, 7, 16}) {
      const auto few = inputs_for(GetParam(), rows, dtype);
      const auto part = compile(trace(fn, ir::types_of(few)))(few);
      for (std::size_t i = 0; i < part.size(); ++i)
        EXPECT_EQ(std::memcmp(part[i].raw(), whole[i].raw(), part[i].bytes()), 0) << rows << " rows, output " << i;
    }
  }
}

// Counts what statements inside loops read and write along their vectors.
struct Accesses {
  int side_by_side = 0, apart = 0, maps = 0;

  void walk(const kernel::Block& block, bool in_loop) {
    for (const kernel::Stmt& stmt : block) {
      if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) {
        walk(loop->test, true);
        walk(loop->body, true);
      } else if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) {
        walk(grid->body, in_loop);
      } else if (const auto* map = std::get_if<kernel::Map>(&stmt.node); map != nullptr && in_loop) {
        count(*map);
      }
    }
  }
  void count(const kernel::Map& map) {
    if (map.vector_dim < 0) return;
    ++maps;
    const kernel::Var lane = map.dims[static_cast<std::size_t>(map.vector_dim)].var;
    for (const kernel::Instr& instr : map.instrs) {
      if (instr.kind != kernel::Instr::Kind::Load && instr.kind != kernel::Instr::Kind::Store) continue;
      const std::int64_t step = instr.access.index.coefficient(lane);
      side_by_side += step == 1;
      apart += (step != 0 && step != 1) || !instr.access.indirect.empty();
    }
  }
};

void for_each_map(const kernel::Block& block, const std::function<void(const kernel::Map&)>& visit) {
  for (const kernel::Stmt& stmt : block) {
    if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) for_each_map(loop->body, visit);
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) for_each_map(grid->body, visit);
    if (const auto* map = std::get_if<kernel::Map>(&stmt.node)) visit(*map);
  }
}

Accesses accesses_in(const TracedFunction& fn, const std::vector<Array>& inputs) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  const auto program = schedule(*passes::optimize(*trace(fn, ir::types_of(inputs)), {}), options);
  Accesses accesses;
  accesses.walk(program.body, false);
  return accesses;
}

TEST_P(ShortRows, FillVectorsWithRowsAndGatherNothing) {
  const Accesses a =
      accesses_in([&](Values in) { return run(GetParam(), in); }, inputs_for(GetParam(), 150, DType::F32));
  EXPECT_GT(a.side_by_side, 0);
  EXPECT_EQ(a.apart, 0);
  EXPECT_LE(a.maps, 4);  // one for the body; whether to go on, whether any does, and the count
}

// What is turned on the way into the loop and out of it is a nest: not code for each number of a row, of which a solver's results may have thousands.
TEST_P(ShortRows, AreTurnedByNestsWhereTheyAreMoreThanAFewNumbers) {
  constexpr int few_numbers = 8;
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  const auto graph =
      trace([&](Values in) { return run(GetParam(), in); }, ir::types_of(inputs_for(GetParam(), 150, DType::F32)));
  const auto program = schedule(*passes::optimize(*graph, {}), options);
  kernel::for_each_statement(program.body, [&](const auto& statement) {
    if constexpr (std::is_same_v<std::decay_t<decltype(statement)>, kernel::Map>) {
      Accesses of_map;
      of_map.count(statement);
      EXPECT_LE(of_map.apart, few_numbers) << statement.name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, ShortRows, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// What is written out number by number, as the factors of small matrices are, fills vectors with rows without loops, too; products with weights
// that rows share do not change that.
TEST(ShortRowsWithoutLoops, SmallSystemsReadRowsSideBySide) {
  constexpr int few_numbers = 8;  // of the given right-hand side and the solution
  for (const bool of_weights : {false, true}) {
    const TracedFunction fn = [=](Values in) {
      const auto one = [&](Values v) {
        const Value half = of_weights ? reshape(matmul(v[0], in[2]), {4, 4}) : v[0];
        const Value positive = matmul(half, transpose(half, {1, 0})) +
                               cast(equal(iota(DType::I32, {4, 4}, 0), iota(DType::I32, {4, 4}, 1)), half.dtype());
        return std::vector<Value>{linalg::solve(positive, v[1])};
      };
      return vmap(one, {0, 0})(in.subspan(0, 2));
    };
    std::vector<Array> inputs;
    for (const Shape& shape : {of_weights ? Shape{150, 8} : Shape{150, 4, 4}, Shape{150, 4}, Shape{8, 16}}) {
      inputs.emplace_back(DType::F32, shape);
      for (std::int64_t i = 0; i < inputs.back().size(); ++i)
        inputs.back().set(i, static_cast<double>((i * 7919) % 997) / 997 - 0.4);
    }
    ScheduleOptions options;
    options.target = kernel::target_named("avx512");
    const auto graph = trace(fn, ir::types_of(inputs));
    const auto program = schedule(*passes::optimize(*graph, {}), options);
    Accesses accesses;
    kernel::for_each_statement(program.body, [&](const auto& statement) {
      if constexpr (std::is_same_v<std::decay_t<decltype(statement)>, kernel::Map>) accesses.count(statement);
    });
    EXPECT_GT(accesses.side_by_side, 0);
    // Besides, the matrices are turned whole, in squares.
    EXPECT_LE(accesses.apart, few_numbers + 2) << of_weights;
    ir::expect_backends_agree(graph, inputs, 2e-4);
  }
}

// A statement that touches a wide number has half the lanes, which a sum over two axes shows in its last bits.
TEST(ShortRowsOfTwoWidths, ANarrowSumHasTheSameBitsAloneAndInAnyBatch) {
  const auto one = [](Values in) {
    return while_loop([&](Values s) { return less(s[1], in[2]); },
                      [&](Values s) {
                        const Value weighted = s[0] * cast(in[1], DType::F32);
                        return std::vector<Value>{0.4 * s[0] + 0.01 * reduce_sum(weighted, {0, 1}), s[1] + 1};
                      },
                      std::vector<Value>{in[0], constant(0, DType::I32)}, 20);
  };
  const auto fn = vmap(one, {0, 0, 0});
  const auto inputs_of = [](std::int64_t rows) {
    std::vector<Array> in = {Array(DType::F32, {rows, 3, 13}), Array(DType::F64, {rows, 3, 13}),
                             Array(DType::I32, {rows})};
    for (std::int64_t i = 0; i < in[0].size(); ++i) {
      in[0].set(i, static_cast<double>((i * 7919) % 997) / 997 - 0.4);
      in[1].set(i, static_cast<double>((i * 131) % 89) / 89 + 0.1);
    }
    for (std::int64_t i = 0; i < rows; ++i) in[2].set(i, static_cast<double>(i * 31 % 14));
    return in;
  };
  const auto all = inputs_of(150);
  const Array whole = compile(trace(fn, ir::types_of(all)))(all)[0];
  for (const std::int64_t rows : {1, 7, 16}) {
    const auto few = inputs_of(rows);
    const Array part = compile(trace(fn, ir::types_of(few)))(few)[0];
    EXPECT_EQ(std::memcmp(part.raw(), whole.raw(), part.bytes()), 0) << rows << " rows";
  }
}

// Sixteen hidden units by weights that rows share are vectors as they are; by lanes they would be 96 products of code a step, each
// of a number that is spread first.
TEST(LongWeights, KeepTheNumbersOfARowTogether) {
  const auto num_dots = [](std::int64_t hidden) {
    const auto fn = [](Values in) {
      const auto step = [&](Values carry, Values) {
        return std::pair(std::vector<Value>{carry[0] + matmul(tanh(matmul(carry[0], in[1])), in[2])},
                         std::vector<Value>{});
      };
      return scan(step, std::vector<Value>{in[0]}, {}, {.length = 10}).first;
    };
    const std::vector<Array> inputs = {Array::full(DType::F32, {64, 3}, 0.5), Array::full(DType::F32, {3, hidden}, 0.1),
                                       Array::full(DType::F32, {hidden, 3}, 0.1)};
    const auto program = compile(trace(fn, ir::types_of(inputs)));
    KernelHistory::start();
    (void)program(inputs);
    return KernelHistory::stop().at(0).num_dots;
  };
  EXPECT_EQ(num_dots(8), 0);
  EXPECT_EQ(num_dots(16), 2);
}

// Blocks of 64 numbers, each row's at a place of its own: beside the short rows that say where, they would be looked up number by number.
TEST(LongRowsThatAreFound, AreReadSideBySide) {
  const auto fn = [](Values in) {
    const auto step = [&](Values carry, Values) {
      const Value place = argmax(carry[0], 1), block = gather(in[0], place, 1, 1);
      const Value most = broadcast(reduce_max(block, {1}), carry[0].shape(), {0});
      const Value is_there = equal(iota(DType::I32, carry[0].shape(), 1), broadcast(place, carry[0].shape(), {0}));
      return std::pair(std::vector{select(is_there, carry[0] - most, carry[0])}, std::vector<Value>{});
    };
    return scan(step, std::vector<Value>{reduce_max(in[0], {2})}, {}, {.length = 10}).first;
  };
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  const std::vector<ValueType> types = {{DType::F32, {256, 16, 64}}};
  const auto program = schedule(*passes::optimize(*trace(fn, types), {}), options);
  int found = 0;
  for_each_map(program.body, [&](const kernel::Map& map) {
    for (const kernel::Instr& instr : map.instrs) {
      if (instr.kind != kernel::Instr::Kind::Load || instr.access.indirect.empty()) continue;
      ++found;
      ASSERT_GE(map.vector_dim, 0);
      const kernel::Dim& lanes = map.dims[static_cast<std::size_t>(map.vector_dim)];
      EXPECT_EQ(lanes.extent.bound, 64);
      EXPECT_EQ(instr.access.index.coefficient(lanes.var), 1);
    }
  });
  EXPECT_GT(found, 0);
}

// An ensemble of adaptive solves: a state of three numbers costs as many statements as three states of one.
TEST(ShortRowsOfSolves, OneLeafOfThreeIsOneStatement) {
  const auto fn = [](bool together) {
    return vmap(
        [together](Values in) {
          const auto field = [&](Value a, Value b, Value c) {
            return std::vector<Value>{10 * (b - a), a * (in[0] - c) - b, a * b - 8.0 / 3 * c};
          };
          ode::Options options;
          options.dt0 = 0.01;
          options.controller = ode::PID(1e-6, 1e-6);
          if (together) {
            const ode::Field f = [&](Value, const Tree<Value>& y, const Tree<Value>&) {
              return Tree<Value>(stacked(field(at(y.leaf(), 0), at(y.leaf(), 1), at(y.leaf(), 2))));
            };
            const Tree<Value> y0(constant(Array::from(std::vector<float>{1, 0, 0}, {3})));
            return std::vector<Value>{ode::solve(f, ode::Tsit5(), 0, 1, y0, options).y1.leaf()};
          }
          const ode::Field f = [&](Value, const Tree<Value>& y, const Tree<Value>&) {
            const auto k = field(y["a"], y["b"], y["c"]);
            return Tree<Value>{{"a", k[0]}, {"b", k[1]}, {"c", k[2]}};
          };
          const Tree<Value> y0 = {{"a", constant(1)}, {"b", constant(0)}, {"c", constant(0)}};
          return ode::solve(f, ode::Tsit5(), 0, 1, y0, options).y1.flatten();
        },
        {0});
  };
  const std::vector<Array> rho = {Array::full(DType::F32, {1000}, 20)};
  const Accesses together = accesses_in(fn(true), rho), apart = accesses_in(fn(false), rho);
  EXPECT_EQ(together.apart, 0);
  EXPECT_EQ(apart.apart, 0);
  EXPECT_EQ(together.maps, apart.maps);
  EXPECT_LE(together.maps, 4);
}

// By lanes, the weights of a product are read where they lie: each group's own, also where all groups have the same rows.
TEST(ShortRowsOfGroups, AreMultipliedByTheirOwnWeights) {
  const auto grouped = [](Values in) {
    const Value rows = broadcast(0.5 * reduce_sum(in[0], {1}), {4, 3, 3}, {0, 2});
    const Value products =
        dot(rows, in[1], {.lhs_contract = {2}, .rhs_contract = {2}, .lhs_batch = {1}, .rhs_batch = {1}});
    return std::vector{reduce_sum(products, {0, 2})};
  };
  std::vector<double> x(4 * 65 * 3), weights(64 * 3 * 3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = std::cos(static_cast<double>(i * i % 101));
  const std::vector<Array> inputs = {Array::from(x, {4, 65, 3}), Array::from(weights, {64, 3, 3})};
  const Array wanted = jit(grouped, {.backend = "interp"})(inputs)[0];
  for (const std::string& target : kernel::runnable_targets()) {
    const Array got = jit(grouped, {.target = target})(inputs)[0];
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(got.at(i), wanted.at(i), 1e-11) << target << " " << i;
  }
}

}  // namespace
}  // namespace hotloop
