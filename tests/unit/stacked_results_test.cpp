// What a loop gives of its steps, time first, is written once: where it is wanted, also with the batch first.
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

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

constexpr std::int64_t rows = 20, time_steps = 5;

// (x [rows, time, inputs], W [inputs, hidden], U [hidden, hidden]) -> the states of all steps and the last one.
struct States {
  Value all, last;  // [time, rows, hidden], [rows, hidden]
};
States states(Values in, bool reverse = false) {
  const Value w = in[1], u = in[2], xs[] = {transpose(in[0], {1, 0, 2})};
  const Value init[] = {broadcast_to(constant(0.0, in[0].dtype()), {in[0].shape()[0], w.shape()[1]})};
  const auto step = [&](Values h, Values x) {
    const Value next = tanh(matmul(x[0], w) + matmul(h[0], u));
    return std::pair{std::vector<Value>{next}, std::vector<Value>{next}};
  };
  const auto [last, ys] = scan(step, init, xs, {.reverse = reverse});
  return {ys[0], last[0]};
}
Value batch_first(Value ys) { return transpose(ys, {1, 0, 2}); }

std::vector<Array> inputs_of(DType dtype, std::int64_t hidden) {
  ir::Rng rng(3);
  const auto weights = [&](std::int64_t n) {  // that keep the states from saturation, where rounding grows
    Array w = ir::normal(rng, {dtype, {n, hidden}});
    for (std::int64_t i = 0; i < w.size(); ++i) w.set(i, w.at(i) * 0.5 / std::sqrt(static_cast<double>(n)));
    return w;
  };
  return {ir::normal(rng, {dtype, {rows, time_steps, 5}}), weights(5), weights(hidden)};
}

struct Counts {
  int maps_in_loops = 0, stores_in_loops = 0, stores_after = 0;  // the stores: of results, the second outside of loops

  void walk(const kernel::Program& program, const kernel::Block& block, bool in_loop) {
    for (const kernel::Stmt& stmt : block) {
      if (const auto* single = std::get_if<kernel::Single>(&stmt.node)) walk(program, single->body, in_loop);
      if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) walk(program, grid->body, in_loop);
      if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) walk(program, loop->body, true);
      const auto* map = std::get_if<kernel::Map>(&stmt.node);
      if (map == nullptr) continue;
      maps_in_loops += in_loop;
      for (const kernel::Instr& i : map->instrs)
        if (i.kind == kernel::Instr::Kind::Store &&
            program.buffers[static_cast<std::size_t>(i.access.buffer)].space == kernel::Space::Result)
          ++(in_loop ? stores_in_loops : stores_after);
    }
  }
};

Counts counts_of(const TracedFunction& fn, std::int64_t hidden) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx2");
  const kernel::Program program =
      schedule(*passes::optimize(*trace(fn, ir::types_of(inputs_of(DType::F32, hidden))), {}), options);
  Counts counts;
  counts.walk(program, program.body, false);
  return counts;
}

TEST(StackedResults, AreWrittenByTheLoopWhereTheBatchComesFirst) {
  const auto fn = [](Values in) { return std::vector<Value>{batch_first(states(in).all)}; };
  const Counts counts = counts_of(fn, 32);
  EXPECT_EQ(counts.stores_in_loops, 1);
  EXPECT_EQ(counts.stores_after, 0);
  EXPECT_EQ(counts.maps_in_loops, 1) << "the state and the result are stored by the map that computes them";
}

TEST(StackedResults, WhoseNumbersWouldLieApartAreTurnedAtTheEnd) {
  const auto fn = [](Values in) { return std::vector<Value>{transpose(states(in).all, {1, 2, 0})}; };
  const Counts counts = counts_of(fn, 32);
  EXPECT_EQ(counts.stores_in_loops, 0);
  EXPECT_EQ(counts.stores_after, 1);
}

struct Case {
  std::string name;
  std::function<std::vector<Value>(Values)> fn;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  return {
      {"batch_first", [](Values in) { return std::vector<Value>{batch_first(states(in).all)}; }},
      {"with_the_last",
       [](Values in) {
         const States s = states(in);
         return std::vector<Value>{s.last, batch_first(s.all)};
       }},
      {"in_both_orders",
       [](Values in) {
         const States s = states(in);
         return std::vector<Value>{batch_first(s.all), s.all};
       }},
      {"twice",
       [](Values in) {
         const States s = states(in);
         return std::vector<Value>{batch_first(s.all), batch_first(s.all)};
       }},
      {"time_last",
       [](Values in) {
         return std::vector<Value>{transpose(states(in).all, {1, 2, 0})};
       }},
      {"in_one_row",
       [](Values in) {
         const Value y = batch_first(states(in).all);
         return std::vector<Value>{reshape(y, {rows, y.shape()[1] * y.shape()[2]})};
       }},
      {"read_by_a_head",
       [](Values in) {
         const Value y = batch_first(states(in).all);
         return std::vector<Value>{y, matmul(y, in[2]), sum(y)};
       }},
      {"both_directions",
       [](Values in) {
         const Value both[] = {states(in).all, states(in, true).all};
         return std::vector<Value>{batch_first(concat(both, 2))};
       }},
      {"two_layers",
       [](Values in) {
         const Value first = batch_first(states(in).all);
         const Value second[] = {first, in[2], in[2]};
         return std::vector<Value>{batch_first(states(second).all), first};
       }},
      {"with_gradients",
       [](Values in) {
         const auto loss = [](Values v) {
           const Value y = batch_first(states(v).all);
           return std::vector<Value>{mean(square(y)), y};
         };
         auto [all, pull] = vjp(loss, in);
         const Value seeds[] = {like(all[0], 1), 0.5 * all[1]};
         for (const Value g : pull(seeds)) all.push_back(g);
         return all;
       }},
  };
}

class Stacked : public ::testing::TestWithParam<Case> {};

TEST_P(Stacked, AreWhatTheInterpreterGives) {
  for (const auto& [hidden, dtype] :
       {std::pair<std::int64_t, DType>(3, DType::F32), {16, DType::F32}, {21, DType::F64}}) {
    const auto inputs = inputs_of(dtype, hidden);
    SCOPED_TRACE(std::to_string(hidden) + " units, " + std::string(hotloop::name_of(dtype)));
    ir::expect_backends_agree(trace(GetParam().fn, ir::types_of(inputs)), inputs, dtype == DType::F32 ? 2e-5 : 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, Stacked, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

// The result is written while the argument is still read, of which the memory is taken over all the same where each step writes
// what it has read.
TEST(StackedResults, TakeOverTheMemoryOfADonatedArgumentOrLeaveIt) {
  const auto fn = [](Values in) { return std::vector<Value>{batch_first(states(in).all)}; };
  CompileOptions options;
  options.donated = {0};
  const auto graph = trace(fn, ir::types_of(inputs_of(DType::F32, 5)));
  const auto wanted = compile(graph)(inputs_of(DType::F32, 5));
  std::vector<Array> inputs = inputs_of(DType::F32, 5), got(1);
  compile(graph, options).run_donating(inputs, got);
  EXPECT_EQ(std::memcmp(got[0].raw(), wanted[0].raw(), wanted[0].bytes()), 0);
}

}  // namespace
}  // namespace hotloop
