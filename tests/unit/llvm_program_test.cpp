// Whole programs by the llvm backend: grids, workers, loops, cancelling, shared code and the cache.
#include "llvm_backend.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

namespace hotloop::kernel {
namespace {

class LlvmPrograms : public LlvmBackend {};

// y[r] = sum over tiles' rows, through a worker's scratch, with blocks of two tiles and rows that do not divide.
Program grid_program(const Target& target, std::int64_t max_rows) {
  constexpr std::int64_t n = 20, tile = 4;
  ProgramBuilder p(target, max_rows);
  const std::int64_t tiles = (max_rows + tile - 1) / tile, blocks = (tiles + 1) / 2;
  const int x = p.argument(f32, max_rows * n), y = p.result(f32, max_rows * n), total = p.result(f32, n);
  const int kept = p.worker(f32, tile * n), partial = p.shared(f32, blocks * n);
  const Var block = p.var("block"), row0 = p.var("row0"), rows = p.var("tile_rows"), t = p.var("t");
  const Var r = p.var("r"), i = p.var("i"), b = p.var("b");
  Grid grid{block, row0, rows, {max_rows, rows_var}, tile, blocks, 2, {}, {}};
  MapBuilder clear({{i, {n, -1}}}, 1, 0);
  clear.store(f32, at(partial, Affine::of(block, n) + Affine::of(i)), clear.constant(0.0f));
  grid.prologue.push_back({clear.build()});
  MapBuilder begin({{r, {tile, rows}}, {i, {n, -1}}}, 2, 1);
  begin.store(f32, at(kept, Affine::of(r, n) + Affine::of(i)),
              begin.load(f32, at(x, Affine::of(row0, n) + Affine::of(r, n) + Affine::of(i))));
  grid.body.push_back({begin.build()});
  MapBuilder step({{r, {tile, rows}}, {i, {n, -1}}}, 2, 1);
  const int h = step.load(f32, at(kept, Affine::of(r, n) + Affine::of(i)));
  const int number = step.op(ScalarOp::Cast, f32, step.index(i32, Affine::of(t)));
  step.store(f32, at(kept, Affine::of(r, n) + Affine::of(i)),
             step.op(ScalarOp::Fma, f32, h, step.constant(0.5f), number));
  For loop{t, {3, -1}, true, {}, {}, {{step.build()}}};
  grid.body.push_back({loop});
  MapBuilder end({{r, {tile, rows}}, {i, {n, -1}}}, 2, 1);
  end.store(f32, at(y, Affine::of(row0, n) + Affine::of(r, n) + Affine::of(i)),
            end.load(f32, at(kept, Affine::of(r, n) + Affine::of(i))));
  grid.body.push_back({end.build()});
  MapBuilder add({{i, {n, -1}}, {r, {tile, rows}}}, 1, 0);
  const int value = add.load(f32, at(kept, Affine::of(r, n) + Affine::of(i)));
  const int sum = add.reduced(ScalarOp::Add, f32, value);
  const Access mine = at(partial, Affine::of(block, n) + Affine::of(i));
  add.store(f32, mine, add.op(ScalarOp::Add, f32, add.load(f32, mine), sum));
  grid.body.push_back({add.build()});
  p.add(grid);
  p.add(Barrier{});
  MapBuilder gather({{i, {n, -1}}, {b, {blocks, -1}}}, 1, 0);
  const int part = gather.load(f32, at(partial, Affine::of(b, n) + Affine::of(i)));
  gather.store(f32, at(total, Affine::of(i)), gather.reduced(ScalarOp::Add, f32, part));
  p.add(gather.build(true));
  return p.build();
}

TEST_P(LlvmPrograms, GridWithOddRows) {
  for (const std::int64_t max_rows : {1, 11, 30}) {
    const Program program = grid_program(target(), max_rows);
    check(program, {1, max_rows / 2 + 1, max_rows});
  }
}

TEST_P(LlvmPrograms, WorkersMeetAtBarriers) {
  for (const int workers : {2, 3}) {
    check(grid_program(target(), 30), {29, 30, 29, 3, 29, 29, 30}, workers);
  }
}

TEST_P(LlvmPrograms, SplitMapsCoverEveryPoint) {
  for (const int workers : {1, 2, 3, 5}) {
    for (const std::int64_t n : {1, 15, 16, 33, 100}) {
      for (const int vector_dim : {0, 1, -1}) {
        ProgramBuilder p(target(), n);
        const int x = p.argument(f32, n * 3), y = p.result(f32, n * 3), z = p.result(i32, n * 3);
        const Var i = p.var("i"), k = p.var("k");
        MapBuilder m({{i, {n, rows_var}}, {k, {3, -1}}}, 2, vector_dim);
        const Affine at_i = Affine::of(i, 3) + Affine::of(k);
        m.store(f32, at(y, at_i), m.op(ScalarOp::Neg, f32, m.load(f32, at(x, at_i))));
        m.store(i32, at(z, at_i), m.index(i32, Affine::of(i, 5) + 2));
        p.add(m.build(true));
        check(p.build(), {n, (n + 1) / 2}, workers);
      }
    }
  }
}

TEST_P(LlvmPrograms, LoopsThatStopAndLets) {
  for (const int limit : {-5, 0, 3, 100}) {
    ProgramBuilder p(target());
    const int count = p.argument(i32, 1), sum = p.result(i32, 1), seen = p.result(i32, 1),
              stop = p.worker(DType::Bool, 1);
    const Var n = p.var("n"), t = p.var("t");
    p.add(Let{n, at(count), i32, 0, 10});
    MapBuilder clear({}, 0, -1);
    clear.store(i32, at(sum), clear.constant<std::int32_t>(0));
    clear.store(i32, at(seen), clear.index(i32, Affine::of(n)));
    p.add(clear.build());
    MapBuilder test({}, 0, -1);
    test.store(DType::Bool, at(stop),
               test.op(ScalarOp::Gt, DType::Bool, test.load(i32, at(sum)), test.constant<std::int32_t>(20)));
    MapBuilder add({}, 0, -1);
    add.store(i32, at(sum), add.op(ScalarOp::Add, i32, add.load(i32, at(sum)), add.index(i32, Affine::of(t, 2) + 1)));
    p.add(For{t, {10, n}, false, {{test.build()}}, at(stop), {{add.build()}}});
    check(p.build(), {1}, 1, {Array::from<std::int32_t>({limit}, Shape{1})});
  }
}

// Rows of parts of a tile, of which the last may be short or have none.
TEST_P(LlvmPrograms, LetsOfWhatIsLeft) {
  for (const std::int64_t rows : {1, 4, 5, 11, 12}) {
    ProgramBuilder p(target(), 12);
    const int x = p.argument(f32, 12), y = p.result(f32, 12), sums = p.result(f32, 4);
    Grid grid;
    grid.block = p.var("block"), grid.row0 = p.var("row0"), grid.rows = p.var("rows");
    grid.total = {12, rows_var}, grid.tile_rows = 6, grid.num_blocks = 2;
    For parts;
    const Var part = parts.counter = p.var("part"), left = p.var("left"), r = p.var("r"), s = p.var("s");
    parts.trip = {2, -1};
    parts.body.push_back({Let{left, {}, i64, 0, 3, Affine::of(grid.rows) + Affine::of(part, -3)}});
    const Affine first = Affine::of(grid.row0) + Affine::of(part, 3);
    MapBuilder add({{r, {3, left}}}, 1, 0);
    const int row = add.load(f32, at(x, first + Affine::of(r)));
    add.store(f32, at(y, first + Affine::of(r)), add.op(ScalarOp::Add, f32, row, add.constant(1.0f)));
    MapBuilder sum({{s, {3, left}}}, 0, -1);
    const int total = sum.reduced(ScalarOp::Add, f32, sum.load(f32, at(x, first + Affine::of(s))));
    sum.store(f32, at(sums, Affine::of(grid.block, 2) + Affine::of(part)), total);
    parts.body.push_back({add.build()});
    parts.body.push_back({sum.build()});
    grid.body.push_back({parts});
    p.add(grid);
    check(p.build(), {rows}, 2);
  }
}

// By one worker, told to stop after 30 ms.
void run_for_a_moment(const Program& program, std::vector<Array>& results) {
  const auto kernel = compile_llvm(program);
  std::int32_t cancel = 0;
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::atomic_ref(cancel).store(1);
  });
  run_kernel(program, kernel->function(), {}, results, 1, 1, &cancel);
  canceller.join();
}

TEST_P(LlvmPrograms, CancelLeavesAnOuterLoop) {
  ProgramBuilder p(target());
  const int count = p.result(i64, 1);
  const Var t = p.var("t");
  MapBuilder add({}, 0, -1);
  add.store(i64, at(count), add.op(ScalarOp::Add, i64, add.load(i64, at(count)), add.constant<std::int64_t>(1)));
  p.add(For{t, {std::int64_t{1} << 40, -1}, false, {}, {}, {{add.build()}}});
  const Program program = p.build();
  std::vector<Array> results{Array::zeros(i64, Shape{1})};
  run_for_a_moment(program, results);
  EXPECT_GT(results[0].at(0), 0);
  EXPECT_LT(results[0].at(0), static_cast<double>(std::int64_t{1} << 40));
}

TEST_P(LlvmPrograms, CancelledWorkersDoNotWaitForEachOther) {
  ProgramBuilder p(target());
  const int count = p.result(i64, 1);
  const Var t = p.var("t");
  MapBuilder add({}, 0, -1);
  add.store(i64, at(count), add.op(ScalarOp::Add, i64, add.load(i64, at(count)), add.constant<std::int64_t>(1)));
  p.add(For{t, {std::int64_t{1} << 40, -1}, false, {}, {}, {{Single{{{add.build()}}}}, {Barrier{}}}});
  const Program program = p.build();
  const auto kernel = compile_llvm(program);
  for (int repeat = 0; repeat < 10; ++repeat) {
    std::vector<Array> results{Array::zeros(i64, Shape{1})};
    std::int32_t cancel = 0;
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::atomic_ref(cancel).store(1);
    });
    run_kernel(program, kernel->function(), {}, results, 1, 2, &cancel);
    canceller.join();
    EXPECT_LT(results[0].at(0), static_cast<double>(std::int64_t{1} << 40));
  }
}

std::size_t functions_in(const std::string& source, const std::string& name) {
  std::size_t count = 0;
  for (std::size_t at = source.find("define internal void @" + name); at != std::string::npos;
       at = source.find("define internal void @" + name, at + 1)) {
    ++count;
  }
  return count;
}

TEST_P(LlvmPrograms, EqualStatementsShareTheirCode) {
  ProgramBuilder p(target());
  constexpr std::int64_t n = 40;
  const int x = p.argument(f32, 3 * n), y = p.result(f32, 3 * n);
  const Var i = p.var("i");
  for (const std::int64_t part : {0, 1, 2}) {
    MapBuilder m({{i, {n, -1}}}, 1, 0);
    m.store(f32, at(y, Affine::of(i) + part * n),
            m.op(ScalarOp::Neg, f32, m.load(f32, at(x, Affine::of(i) + part * n))));
    p.add(m.build());
  }
  const Program program = p.build();
  EXPECT_EQ(functions_in(compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source, "map"), 1u);
  check(program);
}

// What a condition leaves out in a worker's own memory may be written again as it is, but not where another worker may write it: such statements, equal but
// for where they write, do not share their code.
TEST_P(LlvmPrograms, OnlyAWorkersOwnMemoryIsWrittenWhereAConditionLeavesOut) {
  ProgramBuilder p(target());
  constexpr std::int64_t n = 64;
  const int x = p.argument(f32, n), y = p.result(f32, n), z = p.result(f32, n), own = p.worker(f32, n);
  const Var i = p.var("i");
  for (const int to : {own, y}) {
    MapBuilder all({{i, {n, -1}}}, 1, 0);
    all.store(f32, at(to, Affine::of(i)), all.load(f32, at(x, Affine::of(i))));
    p.add(all.build());
    MapBuilder some({{i, {n, -1}}}, 1, 0);
    const int value = some.load(f32, at(x, Affine::of(i)));
    const int positive = some.op(ScalarOp::Gt, DType::Bool, value, some.constant<float>(0));
    some.store(f32, at(to, Affine::of(i)), some.op(ScalarOp::Neg, f32, value), positive);
    p.add(some.build());
  }
  MapBuilder copy({{i, {n, -1}}}, 1, 0);
  copy.store(f32, at(z, Affine::of(i)), copy.load(f32, at(own, Affine::of(i))));
  p.add(copy.build());
  const Program program = p.build();
  EXPECT_NE(compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source.find("masked.store"),
            std::string::npos);
  check(program);
}

TEST_P(LlvmPrograms, LongBlocksAreCutIntoFunctions) {
  const Program program = many_statements(target());
  std::istringstream source(compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source);
  int num_functions = 0;
  std::size_t length = 0, longest = 0;
  for (std::string line; std::getline(source, line); ++length) {
    if (!line.starts_with("define")) continue;
    num_functions += line.find("@part") != std::string::npos;
    longest = std::max(longest, length);
    length = 0;
  }
  EXPECT_GE(num_functions, 8);
  EXPECT_LT(std::max(longest, length), 2000u);  // lines; in one function they are some eleven thousand
  check(program, {1}, 1, arguments_of_many_statements());
}

TEST_P(LlvmPrograms, CancelLeavesALoopInAPart) {
  const Program program = long_loop_among_statements(target());
  std::vector<Array> results{Array::zeros(i64, Shape{1}), Array::zeros(i64, Shape{1})};
  run_for_a_moment(program, results);
  EXPECT_GE(results[0].at(0), 149 * 75);
  EXPECT_EQ(results[1].at(0), 0);
}

TEST_P(LlvmPrograms, DiskCache) {
  const std::string directory = testing::TempDir() + "hotloop_llvm_cache_" + GetParam() + std::to_string(::getpid());
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  const Program program = dot_program(target(), {f32, 6, 32, {5}, true});
  const BackendOptions options{.keep_source = false, .cache_dir = directory};
  EXPECT_FALSE(compile_llvm(program, options)->from_cache);
  EXPECT_TRUE(compile_llvm(program, options)->from_cache);
  EXPECT_FALSE(compile_llvm(dot_program(target(), {f32, 6, 32, {6}, true}), options)->from_cache);
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {  // a byte in the middle
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(entry.file_size() / 2));
    const int byte = file.peek();
    file.seekp(static_cast<std::streamoff>(entry.file_size() / 2));
    file.put(static_cast<char>(byte ^ 0x20));
  }
  EXPECT_FALSE(compile_llvm(program, options)->from_cache);
  const auto kernel = compile_llvm(program, options);
  EXPECT_TRUE(kernel->from_cache);
  EXPECT_GT(kernel->code_bytes, 0u);
  std::vector<Array> results{Array::zeros(f32, program.results[0].shape)},
      want{Array::zeros(f32, program.results[0].shape)};
  std::mt19937 random(1);
  std::vector<Array> arguments;
  for (const ValueType& type : program.arguments) arguments.push_back(random_values(f32, type.shape.size(), random));
  run_kernel(program, kernel->function(), arguments, results);
  Reference(program, arguments, want, 1).run();
  EXPECT_EQ(std::memcmp(results[0].raw(), want[0].raw(), results[0].bytes()), 0);
  std::filesystem::remove_all(directory);
}

INSTANTIATE_TEST_SUITE_P(Targets, LlvmPrograms, testing::ValuesIn(hotloop::kernel::native_targets),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
