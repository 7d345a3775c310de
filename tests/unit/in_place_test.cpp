// Carries of which each iteration replaces a part are one memory from the first iteration to the last.
#include <algorithm>

#include <gtest/gtest.h>

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

constexpr std::int64_t rows = 60, width = 5;

Value index(int i) { return constant(i, DType::I32); }

Value with_row(Value table, Value at, Value row) {
  const Value starts[] = {at, index(0)};
  return dynamic_update(table, expand_dims(row, 0), starts);
}

Value row_of(Value table, Value at) {
  const Value starts[] = {at, index(0)};
  return reshape(dynamic_slice(table, starts, {1, width}), {width});
}

Value remainder_of(Value i) { return rem(i, broadcast_to(index(static_cast<int>(rows)), i.shape())); }

// Points of the largest statement inside loops, times the loops around it, and of those alone that write a table.
std::int64_t largest_map_in_loops(const kernel::Block& block, bool in_loop) {
  std::int64_t largest = 0;
  for (const kernel::Stmt& stmt : block) {
    if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) {
      largest = std::max(largest, largest_map_in_loops(loop->body, true));
    } else if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) {
      largest = std::max(largest, largest_map_in_loops(grid->body, in_loop));
    } else if (const auto* single = std::get_if<kernel::Single>(&stmt.node)) {
      largest = std::max(largest, largest_map_in_loops(single->body, in_loop));
    } else if (const auto* map = std::get_if<kernel::Map>(&stmt.node); map != nullptr && in_loop) {
      std::int64_t points = 1;
      for (const kernel::Dim& d : map->dims) points *= d.extent.bound;
      largest = std::max(largest, points);
    }
  }
  return largest;
}

struct Program {
  std::string name;
  TracedFunction fn;  // (table [rows, width], y [width]) -> any
  bool in_place = true;
};
void PrintTo(const Program& p, std::ostream* out) { *out << p.name; }

std::vector<Program> programs() {
  const auto loop_over = [](const CarryBody& body) {
    return [body](Values in) {
      return while_loop([](Values c) { return less(c[0], index(rows)); }, body,
                        std::vector<Value>{index(0), in[0], in[1]}, 2 * rows);
    };
  };
  const auto inner = [](Values c, bool reads_table) {
    // Two rows of each outer iteration, in a loop that is entered with the outer carry.
    const Value stop = c[0] + 2;
    const Value seen = reads_table ? sum(c[1]) : sum(c[2]);
    const auto out =
        while_loop([&](Values s) { return less(s[0], stop); },
                   [&](Values s) {
                     return std::vector<Value>{s[0] + 1, with_row(s[1], s[0], s[2]), 0.9 * s[2] + 0.001 * seen};
                   },
                   c, 4);
    return out;
  };
  return {
      {"row", loop_over([](Values c) {
         return std::vector<Value>{c[0] + 1, with_row(c[1], c[0], c[2]), 0.9 * c[2] + 0.1};
       })},
      {"row_and_the_old_row", loop_over([](Values c) {
         return std::vector<Value>{c[0] + 1, with_row(c[1], c[0], c[2]), 0.9 * c[2] + row_of(c[1], c[0])};
       })},
      {"row_made_of_an_old_row", loop_over([](Values c) {
         const Value before = row_of(c[1], maximum(c[0] - 1, index(0)));
         return std::vector<Value>{c[0] + 1, with_row(c[1], c[0], c[2] + 0.5 * reverse(before, {0})), 0.9 * c[2]};
       })},
      {"row_turned_around", loop_over([](Values c) {
         return std::vector<Value>{c[0] + 1, with_row(c[1], c[0], c[2] + reverse(row_of(c[1], c[0]), {0})), 0.9 * c[2]};
       })},
      {"row_added_to", loop_over([](Values c) {
         return std::vector<Value>{c[0] + 1, with_row(c[1], c[0], c[2] + 0.5 * row_of(c[1], c[0])), 0.9 * c[2]};
       })},
      {"two_rows", loop_over([](Values c) {
         const Value other = remainder_of(3 * c[0] + 1), change = 0.1 * tanh(row_of(c[1], c[0]) - row_of(c[1], other));
         const Value first = with_row(c[1], c[0], row_of(c[1], c[0]) + change);
         return std::vector<Value>{c[0] + 1, with_row(first, other, row_of(first, other) - change), 0.9 * c[2]};
       })},
      {"second_row_of_both_tables", loop_over([](Values c) {
         const Value first = with_row(c[1], c[0], c[2]), other = remainder_of(3 * c[0] + 1);
         const Value row =
             row_of(first, other) * 0.5 + reverse(row_of(first, remainder_of(c[0] + 7)), {0}) - row_of(c[1], c[0]);
         return std::vector<Value>{c[0] + 1, with_row(first, other, row), 0.9 * c[2]};
       })},
      {"row_at_a_place_that_the_table_tells", loop_over([](Values c) {
         const Value at = remainder_of(abs(cast(10.0 * take(row_of(c[1], c[0]), 0, 1), DType::I32)));
         return std::vector<Value>{c[0] + 1, with_row(c[1], at, c[2]), 0.9 * c[2]};
       })},
      {"row_of_the_new_table", loop_over([](Values c) {
         const Value table = with_row(c[1], c[0], c[2]);
         return std::vector<Value>{c[0] + 1, table, 0.9 * c[2] + 0.1 * row_of(table, remainder_of(c[0] + 7))};
       })},
      {"rows_added", loop_over([](Values c) {
         const Value at = remainder_of(7 * iota(DType::I32, {3}, 0) + broadcast_to(c[0], {3}));
         const Value read = gather(c[1], remainder_of(at + 1), 0);
         return std::vector<Value>{c[0] + 1, scatter_add(c[1], at, 0.1 * tanh(read), 0), 0.9 * c[2]};
       })},
      {"row_replaced_then_rows_added", loop_over([](Values c) {
         const Value first = with_row(c[1], c[0], c[2] + row_of(c[1], remainder_of(c[0] + 1)));
         const Value at = remainder_of(iota(DType::I32, {3}, 0) + broadcast_to(c[0], {3}));
         return std::vector<Value>{c[0] + 1, scatter_add(first, at, 0.1 * gather(first, remainder_of(at + 2), 0), 0),
                                   0.9 * c[2]};
       })},
      {"inner_loop", loop_over([=](Values c) { return inner(c, false); })},
      {"inner_loop_that_reads_the_old_table", loop_over([=](Values c) { return inner(c, true); }), false},
      {"two_tables",
       [](Values in) {
         return while_loop([](Values c) { return less(c[0], index(rows)); },
                           [](Values c) {
                             return std::vector<Value>{c[0] + 1, with_row(c[1], c[0], c[3]),
                                                       with_row(c[2], c[0], row_of(c[1], c[0])), 0.9 * c[3]};
                           },
                           std::vector<Value>{index(0), in[0], 2.0 * in[0], in[1]}, rows);
       }},
      {"two_tables_of_each_other",
       [](Values in) {
         return while_loop([](Values c) { return less(c[0], index(rows)); },
                           [](Values c) {
                             const Value at = remainder_of(7 * iota(DType::I32, {3}, 0) + broadcast_to(c[0], {3}));
                             const Value a = gather(c[1], at, 0), b = gather(c[2], remainder_of(at + 1), 0);
                             return std::vector<Value>{
                                 c[0] + 1, scatter_add(c[1], at, 0.1 * tanh(b), 0),
                                 with_row(c[2], c[0], reduce_sum(0.1 * a, {0}) + row_of(c[1], c[0])), c[3]};
                           },
                           std::vector<Value>{index(0), in[0], 2.0 * in[0], in[1]}, rows);
       }},
      {"gradient",
       [](Values in) {
         const auto loss = [](Values v) {
           const auto out = scan(
               [](Values c, Values) {
                 return std::pair(std::vector<Value>{c[0] + 1, with_row(c[1], c[0], c[2]), sin(c[2])},
                                  std::vector<Value>{});
               },
               std::vector<Value>{index(0), v[0], v[1]}, {}, {.length = rows});
           return std::vector<Value>{sum(square(out.first[1]))};
         };
         return grad(loss, {0, 1})(in);
       }},
  };
}

class InPlace : public ::testing::TestWithParam<Program> {};

std::vector<Array> inputs() {
  Array table(DType::F64, {rows, width}), y(DType::F64, {width});
  for (std::int64_t i = 0; i < table.size(); ++i) table.set(i, static_cast<double>(i % 17) / 17 - 0.4);
  for (std::int64_t i = 0; i < width; ++i) y.set(i, 0.3 + 0.1 * static_cast<double>(i));
  return {table, y};
}

TEST_P(InPlace, AgreesWithTheOracle) {
  const auto in = inputs();
  const auto graph = trace(GetParam().fn, ir::types_of(in));
  const auto oracle = ir::evaluate(*graph, in);
  for (const char* backend : {"llvm", "c"}) {
    CompileOptions options;
    options.backend = backend;
    const auto got = compile(graph, options)(in);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(ir::close(got[i], oracle[i], 1e-12)) << backend << i;
  }
}

TEST_P(InPlace, NoIterationCopiesTheTable) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  const auto program = schedule(*passes::optimize(*trace(GetParam().fn, ir::types_of(inputs())), {}), options);
  const std::int64_t largest = largest_map_in_loops(program.body, false);
  if (GetParam().in_place)
    EXPECT_LT(largest, rows * width);
  else
    EXPECT_GE(largest, rows * width);  // or this program no longer tests what must not be done
}

INSTANTIATE_TEST_SUITE_P(All, InPlace, ::testing::ValuesIn(programs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hotloop
