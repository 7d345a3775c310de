// Ensembles whose rows stream through slots: every row is bit for bit what it is alone, whatever the others do.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "kernel_builder.h"
#include "ode_problems.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"
#include "schedule/stream_lanes.h"
#include "targets.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

// (start, rate, limit) -> where a row is when it first reaches its limit, after how many steps, and its iterations as the loop counts
// them: at most 40. A row may need none, and some never end.
std::vector<Value> climb(Values in) {
  const auto ends = [&](Values c) { return less_equal(in[2], c[0]); };
  const auto out = while_loop([&](Values c) { return logical_not(ends(c)); },
                              [&](Values c) {
                                return std::vector<Value>{c[0] + in[1] * (c[0] + like(c[0], 1)), c[1] + like(c[1], 1)};
                              },
                              std::vector<Value>{in[0], like(in[0], 0)}, 40);
  return {out[0], out[1], out[0] * in[1] + in[0]};
}

enum class Rows { Random, AllAtOnce, OneNever, ManyNever, None, Undefined };

std::vector<Array> rows_of(Rows kind, std::int64_t n, DType dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> real(0, 1);
  Array start(dtype, {n}), rate(dtype, {n}), limit(dtype, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    start.set(i, real(random));
    rate.set(i, 0.05 + 0.5 * real(random));
    limit.set(i, kind == Rows::None ? -1 : 1 + 20 * real(random));
    if (kind == Rows::AllAtOnce) start.set(i, 0.5), rate.set(i, 0.25), limit.set(i, 9);
    const bool never = kind == Rows::OneNever ? i == n / 3 : kind == Rows::ManyNever && real(random) < 0.2;
    if (never) limit.set(i, std::numeric_limits<double>::infinity());
    if (kind == Rows::Undefined && real(random) < 0.2) start.set(i, std::numeric_limits<double>::quiet_NaN());
  }
  return {start, rate, limit};
}

bool same_bits(const Array& a, const Array& b, std::int64_t from_a, std::int64_t from_b, std::int64_t rows) {
  const std::int64_t a_row = a.size() / a.shape()[0], b_row = b.size() / b.shape()[0];
  const auto bytes = static_cast<std::int64_t>(size_of(a.dtype()));
  return a_row == b_row && a.dtype() == b.dtype() &&
         std::memcmp(static_cast<const char*>(a.raw()) + from_a * a_row * bytes,
                     static_cast<const char*>(b.raw()) + from_b * b_row * bytes,
                     static_cast<std::size_t>(rows * a_row * bytes)) == 0;
}

Array rows_from(const Array& x, std::int64_t from, std::int64_t n) {
  std::vector<std::int64_t> shape(x.shape().dims().begin(), x.shape().dims().end());
  const std::int64_t row = x.size() / shape[0];
  shape[0] = n;
  Array part(x.dtype(), Shape(shape));
  std::memcpy(part.raw(), static_cast<const char*>(x.raw()) + static_cast<std::size_t>(from * row) * size_of(x.dtype()),
              part.bytes());
  return part;
}

kernel::Program program_of(const TracedFunction& fn, const std::vector<Array>& inputs) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  return schedule(*passes::optimize(*trace(fn, ir::types_of(inputs)), {}), options);
}

std::int64_t slots_of(const kernel::Program& program) {
  for (const kernel::Stmt& stmt : program.body)
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) return grid->slots;
  return -1;
}

// All rows at once, by one thread and two, against batches that are too small to stream.
void expect_rows_of_small_batches(const TracedFunction& fn, const std::vector<Array>& inputs, const std::string& what,
                                  const char* backend = "llvm") {
  const std::int64_t n = inputs[0].shape()[0], part = 500;
  ASSERT_GT(slots_of(program_of(fn, inputs)), 0) << what;
  CompileOptions options;
  options.backend = backend;
  const Jit small = jit(fn, options);
  std::vector<std::vector<Array>> wanted;
  for (std::int64_t from = 0; from < n; from += part) {
    std::vector<Array> some;
    for (const Array& x : inputs) some.push_back(rows_from(x, from, std::min(part, n - from)));
    ASSERT_LE(slots_of(program_of(fn, some)), 0) << what;
    wanted.push_back(small(some));
  }
  for (const int threads : {1, 2}) {
    options.threads = threads;
    const auto got = jit(fn, options)(inputs);
    for (std::size_t i = 0; i < got.size(); ++i)
      for (std::int64_t from = 0; from < n; from += part) {
        const Array& rows = wanted[static_cast<std::size_t>(from / part)][i];
        EXPECT_TRUE(same_bits(got[i], rows, from, 0, std::min(part, n - from)))
            << what << ", " << backend << ", " << threads << " threads, output " << i << ", rows from " << from;
      }
  }
}

void expect_oracle(const TracedFunction& fn, const std::vector<Array>& inputs,
                   const std::vector<CompileOptions>& ways) {
  const auto graph = trace(fn, ir::types_of(inputs));
  const auto wanted = ir::evaluate(*graph, inputs);
  for (const CompileOptions& options : ways) {
    const auto got = compile(graph, options)(inputs);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(ir::close(got[i], wanted[i], 1e-13)) << options.backend << ", " << options.target << ", output " << i;
  }
}

TEST(StreamLanes, EveryRowIsWhatItIsInASmallBatch) {
  unsigned seed = 0;
  for (const Rows kind :
       {Rows::Random, Rows::AllAtOnce, Rows::OneNever, Rows::ManyNever, Rows::None, Rows::Undefined}) {
    const std::string what = "rows " + std::to_string(static_cast<int>(kind));
    const DType dtype = ++seed % 2 == 0 ? DType::F64 : DType::F32;
    for (const std::int64_t n : {1025, 3001})
      expect_rows_of_small_batches(vmap(climb, {0, 0, 0}), rows_of(kind, n, dtype, seed), what);
  }
  expect_rows_of_small_batches(vmap(climb, {0, 0, 0}), rows_of(Rows::ManyNever, 2000, DType::F32, 9), "rendered", "c");
}

TEST(StreamLanes, AgreesWithTheOracleOnEveryTarget) {
  std::vector<CompileOptions> targets;
  for (const std::string& target : kernel::runnable_targets()) targets.push_back({.target = target});
  for (const Rows kind : {Rows::Random, Rows::ManyNever, Rows::Undefined})
    expect_oracle(vmap(climb, {0, 0, 0}), rows_of(kind, 1500, DType::F64, 7), targets);
}

// The number of rows may be a run-time number: less than a slot each, or one more than the slots.
TEST(StreamLanes, AnyNumberOfRows) {
  const auto inputs = rows_of(Rows::ManyNever, 2500, DType::F32, 11);
  const TracedFunction fn = vmap(climb, {0, 0, 0});
  const auto whole = jit(fn)(inputs);
  CompileOptions options;
  options.batch_axes = {0, 0, 0};
  const Executable some = compile(trace(fn, ir::types_of(inputs)), options);
  EXPECT_NE(some.explain().find("rows stream through 64 slots"), std::string::npos) << some.explain();
  for (const std::int64_t n : {1, 7, 63, 64, 65, 191, 192, 193, 2499, 2500}) {
    std::vector<Array> first;
    for (const Array& x : inputs) first.push_back(rows_from(x, 0, n));
    const auto got = some(first);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], whole[i], 0, 0, n)) << n << " " << i;
  }
}

// Adaptive solves, in no order.
std::vector<Value> lorenz(Values in, double t1) {
  const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& rho) {
    const Value a = take(y.leaf(), 0, 0), b = take(y.leaf(), 0, 1), c = take(y.leaf(), 0, 2);
    const Value parts[] = {10 * (b - a), a * (rho.leaf() - c) - b, a * b - 8.0 / 3 * c};
    return Tree<Value>(stack(parts, 0));
  };
  ode::Options options;
  options.args = Tree<Value>(in[0]);
  options.controller = ode::PID(1e-5, 1e-5);
  options.max_steps = 60;
  const auto s = ode::solve(field, ode::Tsit5(), 0, t1, Tree<Value>(in[1]), options);
  return {s.y1.leaf(), s.stats.num_accepted, s.stats.num_steps, s.result};
}

std::vector<Array> lorenz_rows(std::int64_t n, DType dtype) {
  Array rho(dtype, {n}), y0(dtype, {n, 3});
  for (std::int64_t i = 0; i < n; ++i) {
    rho.set(i, 28.0 * static_cast<double>((i * 7919) % 1000) / 1000);
    for (std::int64_t c = 0; c < 3; ++c) y0.set(3 * i + c, 1 + 0.1 * static_cast<double>(c));
  }
  y0.set(3 * (n / 2), std::numeric_limits<double>::quiet_NaN());
  return {rho, y0};
}

TEST(StreamLanes, AdaptiveSolves) {
  const auto until = [](double t1) { return vmap([=](Values in) { return lorenz(in, t1); }, {0, 0}); };
  expect_rows_of_small_batches(until(1), lorenz_rows(1800, DType::F32), "in f32");
  expect_rows_of_small_batches(until(3), lorenz_rows(1300, DType::F64), "many cut off");
}

TEST(StreamLanes, TenMillionSolvesTakeTheMemoryOfTenThousand) {
  const auto program = [](std::int64_t n) {
    const std::vector<ValueType> types = {{DType::F32, {n}}, {DType::F32, {n, 3}}};
    ScheduleOptions options;
    options.target = kernel::target_named("avx512");
    return schedule(*passes::optimize(*trace(vmap([](Values in) { return lorenz(in, 1); }, {0, 0}), types), {}),
                    options);
  };
  const kernel::Program few = program(10'000), many = program(10'000'000);
  EXPECT_GT(slots_of(many), 0);
  EXPECT_EQ(many.worker_bytes, few.worker_bytes);
  EXPECT_EQ(many.shared_bytes, few.shared_bytes);
  EXPECT_LT(many.worker_bytes, 64 << 10);
}

// What a row computes from its number, before the loop and after it.
TEST(StreamLanes, RowsKnowTheirNumbers) {
  const auto fn = [](Values in) {
    const Value number = iota(in[0].dtype(), in[0].shape(), 0);
    const std::vector<Value> moved = {in[0] + 1e-3 * number, in[1], in[2]};
    std::vector<Value> out = vmap(climb, {0, 0, 0})(moved);
    out.push_back(out[0] + number);
    return out;
  };
  const auto inputs = rows_of(Rows::ManyNever, 1700, DType::F64, 5);
  ASSERT_GT(slots_of(program_of(fn, inputs)), 0);
  std::vector<CompileOptions> backends(2);
  backends[0].backend = "llvm";
  backends[1].backend = "c";
  expect_oracle(fn, inputs, backends);
}

// Loops that another row could be seen in stay in tiles: a sum over rows, the number of the iteration, a value that all rows share.
TEST(StreamLanes, OthersStayInTiles) {
  const auto inputs = rows_of(Rows::Random, 1500, DType::F32, 3);
  const auto counted = [](Values in) {
    auto out = vmap(climb, {0, 0, 0})(in);
    out.push_back(sum(out[0]));
    return out;
  };
  EXPECT_EQ(slots_of(program_of(counted, inputs)), 0);
  const auto fixed = [](Values in) {
    return scan([&](Values c, Values) { return std::pair(std::vector<Value>{c[0] + in[1]}, std::vector<Value>{}); },
                std::vector<Value>{in[0]}, {}, {.length = 30})
        .first;
  };
  EXPECT_EQ(slots_of(program_of(fixed, inputs)), 0);
}

enum class Table { ComputedFirst, ComputedLast, ComputedInALoop, OneForAllRows };

// Rows that grow by their product with a table until their first number is large. An iteration computes the table, and nothing of it may pass to
// the next one, which belongs to other rows.
kernel::Program growing(Table kind) {
  using namespace kernel;
  constexpr DType f32 = DType::F32;
  constexpr std::int64_t tile = 16, n = 4;
  ProgramBuilder p(target_named("portable"));
  const int in = p.argument(f32, 4 * tile * n), out = p.result(f32, 4 * tile * n);
  const int state = p.worker(f32, tile * n), product = p.worker(f32, tile * n), table = p.worker(f32, n * n);
  const int done = p.worker(DType::Bool, tile), all_done = p.worker(DType::Bool, 1);
  Grid grid{.block = p.var("block"), .row0 = p.var("row0"), .rows = p.var("rows"), .total = {4 * tile, -1}};
  grid.tile_rows = tile;
  grid.num_blocks = grid.tiles_per_block = 2;
  const Var r = p.var("r"), i = p.var("i");
  const Extent rows{tile, grid.rows};
  const Affine here = Affine::of(r, n) + Affine::of(i), outside = Affine::of(grid.row0, n) + here;
  const auto copy = [&](const Access& to, const Access& from) {
    kernel::MapBuilder m({{r, rows}, {i, {n, -1}}}, 2, 1);
    m.store(f32, to, m.load(f32, from));
    return m.build();
  };
  const auto fill = [&](float value) {
    kernel::MapBuilder m({{r, {n, -1}}, {i, {n, -1}}}, 2, 1);
    m.store(f32, at(table, here), m.constant(value));
    return m.build();
  };
  For loop{.counter = p.var("t"), .trip = {40, -1}};
  kernel::MapBuilder is_done({{r, rows}}, 1, 0);
  const int first = is_done.load(f32, at(state, Affine::of(r, n)));
  is_done.store(DType::Bool, at(done, Affine::of(r)),
                is_done.op(ScalarOp::Gt, DType::Bool, first, is_done.constant(100.0F)));
  kernel::MapBuilder all({{r, rows}}, 0, 0);
  all.store(DType::Bool, at(all_done),
            all.reduced(ScalarOp::And, DType::Bool, all.load(DType::Bool, at(done, Affine::of(r)))));
  loop.test = {{is_done.build()}, {all.build()}};
  loop.stop = at(all_done);
  Dot dot{.name = "dot", .dtype = f32, .m = rows, .n = {n, -1}, .c = at(product), .c_m = n};
  const bool alike = kind == Table::OneForAllRows;
  dot.segments.push_back({at(state), at(alike ? state : table), n, 1, {{{n, -1}, 1, n}}});
  kernel::MapBuilder add({{r, rows}, {i, {n, -1}}}, 2, 1);
  add.store(f32, at(state, here),
            add.op(ScalarOp::Add, f32, add.load(f32, at(state, here)), add.load(f32, at(product, here))));
  Stmt compute{fill(0.5F)};
  if (kind == Table::ComputedInALoop) {
    For once{.counter = p.var("u"), .trip = {2, -1}};
    once.body.push_back(compute);
    compute = {once};
  }
  loop.body = {compute, {dot}, {add.build()}};
  if (kind == Table::ComputedLast) std::swap(loop.body[0], loop.body[1]);
  grid.body = {
      {copy(at(state, here), at(in, outside))}, {fill(0.25F)}, {loop}, {copy(at(out, outside), at(state, here))}};
  p.add(grid);
  Program program = p.build();
  verify(program);
  kernel::stream_lanes(program);
  return program;
}

// What a row was after each of its steps: a table that the loop fills at the row's own count, 18 numbers long. What the loop reads of it: nothing, the entry
// before, or whether to go on.
enum class Looks { Never, Back, WhetherToGoOn };

std::vector<Value> recorded(Values in, Looks looks) {
  constexpr std::int64_t steps = 18;
  const auto entry = [](Values c) { return reshape(dynamic_slice(c[2], std::vector<Value>{c[1]}, {1}), {}); };
  const auto goes_on = [&](Values c) {
    const Value below = less(c[0], in[2]);
    return looks == Looks::WhetherToGoOn ? bit_and(below, less(entry(c), in[2])) : below;
  };
  const auto step = [&](Values c) {
    const Value next = c[0] + in[1] * (c[0] + like(c[0], 1));
    const Value before = looks == Looks::Back ? next + like(next, 0.125) * entry(c) : next;
    const Value table = dynamic_update(c[2], reshape(next, {1}), std::vector<Value>{c[1]});
    return std::vector<Value>{before, c[1] + constant(1, DType::I32), table};
  };
  const Value start = constant(0, DType::I32), empty = constant(-1, in[0].dtype(), {steps});
  const auto out = while_loop(goes_on, step, std::vector<Value>{in[0], start, empty}, steps);
  return {out[2], out[0]};
}

// It would be turned row by row when rows finish; it is scattered either way.
TEST(StreamLanes, ATableThatIsOnlyFilledIsTheResult) {
  const std::vector<Array> inputs = rows_of(Rows::Random, 3000, DType::F32, 5);
  for (const Looks looks : {Looks::Never, Looks::Back, Looks::WhetherToGoOn}) {
    const std::string what = "looks " + std::to_string(static_cast<int>(looks));
    const TracedFunction fn = vmap([&](Values in) { return recorded(in, looks); }, {0, 0, 0});
    const kernel::Program program = program_of(fn, inputs);
    const bool keeps_one = std::ranges::any_of(program.buffers, [&](const kernel::Buffer& b) {
      return b.space == kernel::Space::Worker && b.elements == slots_of(program) * 18;
    });
    EXPECT_EQ(keeps_one, looks != Looks::Never) << what;
    expect_rows_of_small_batches(fn, inputs, what);
    expect_oracle(fn, inputs, {{}});
  }
}

// The factors of a dot are reads like those of a map.
TEST(StreamLanes, NoRowSeesWhatOthersLeftInATable) {
  EXPECT_EQ(slots_of(growing(Table::ComputedFirst)), 16);
  EXPECT_EQ(slots_of(growing(Table::ComputedLast)), 0) << "an iteration reads the table of the one before";
  EXPECT_EQ(slots_of(growing(Table::ComputedInALoop)), 0) << "a loop inside may run for no row at all";
  EXPECT_EQ(slots_of(growing(Table::OneForAllRows)), 0) << "which rows are in the slots";
}

}  // namespace
}  // namespace hotloop
