// Maps that reduce, by the llvm backend.
#include <algorithm>

#include "llvm_backend.h"

namespace hotloop::kernel {
namespace {

class LlvmReductions : public LlvmBackend {};

TEST_P(LlvmReductions, Reductions) {
  for (const DType dtype : {f32, f64, i32}) {
    for (const int vector_dim : {0, 1, 2, -1}) {
      for (const std::int64_t n : {1, 9, 16, 47, 80, 201}) {
        constexpr std::int64_t rows = 5, middle = 3;
        ProgramBuilder p(target(), rows);
        const int x = p.argument(dtype, rows * middle * n);
        const Var r = p.var("r"), k = p.var("k"), i = p.var("i");
        // Outer: r. Reduced: k, i.
        MapBuilder m({{r, {rows, rows_var}}, {k, {middle, -1}}, {i, {n, -1}}}, 1, vector_dim);
        const int a = m.load(dtype, at(x, Affine::of(r, middle * n) + Affine::of(k, n) + Affine::of(i)));
        const int square = m.op(ScalarOp::Mul, dtype, a, a);
        const int sum = m.reduced(ScalarOp::Add, dtype, a), squares = m.reduced(ScalarOp::Add, dtype, square);
        const int most = m.reduced(ScalarOp::Max, dtype, a), least = m.reduced(ScalarOp::Min, dtype, a);
        const int fused = is_float(dtype) ? m.reduced(ScalarOp::Fma, dtype, square, a) : least;
        const int mean = m.op(ScalarOp::Mul, dtype, sum, squares);
        for (const int reg : {sum, mean, most, least, fused})
          m.store(dtype, at(p.result(dtype, rows), Affine::of(r)), reg);
        p.add(m.build());
        check(p.build(), {1, 4, 5});
      }
    }
  }
}

// What has no order is reduced along one long dim, whatever its rows are: extremes and sums of integers, but not sums of floats.
TEST_P(LlvmReductions, WithoutAnOrderRowsAreOneDim) {
  const auto num_lines = [&](DType dtype, ir::ScalarOp combiner, std::int64_t rows, std::int64_t columns) {
    ProgramBuilder p(target());
    const int x = p.argument(dtype, rows * columns), y = p.result(dtype, 1);
    const Var k = p.var("k"), i = p.var("i");
    MapBuilder m({{k, {rows, -1}}, {i, {columns, -1}}}, 0, columns == 1 ? 0 : columns < 8 ? 0 : 1);
    const int a = m.load(dtype, at(x, Affine::of(k, columns) + Affine::of(i)));
    m.store(dtype, at(y), m.reduced(combiner, dtype, a));
    p.add(m.build());
    const Program program = p.build();
    check(program);
    const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
    return std::ranges::count(source, '\n');
  };
  using ir::ScalarOp;
  for (const auto& [dtype, combiner] : {std::pair(f32, ScalarOp::Max), {f64, ScalarOp::Min}, {i32, ScalarOp::Add}}) {
    const auto flat = num_lines(dtype, combiner, 6000, 1);
    EXPECT_EQ(num_lines(dtype, combiner, 1500, 4), flat);
    EXPECT_EQ(num_lines(dtype, combiner, 60, 100), flat);
  }
  EXPECT_NE(num_lines(f32, ScalarOp::Add, 1500, 4), num_lines(f32, ScalarOp::Add, 6000, 1));
}

// As many rows as a vector has lanes are reduced together; what is left over, by itself.
TEST_P(LlvmReductions, ReductionsOfManyRows) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t rows : {2, 7, 8, 16, 17, 31, 32, 75}) {
      for (const std::int64_t n : {5, 16, 40, 100}) {
        ProgramBuilder p(target());
        const int w = p.argument(dtype, rows * n), x = p.argument(dtype, n), bias = p.argument(dtype, rows);
        const int y = p.result(dtype, rows), largest = p.result(dtype, rows);
        const Var r = p.var("r"), k = p.var("k");
        MapBuilder m({{r, {rows, -1}}, {k, {n, -1}}}, 1, 1);
        const int a = m.load(dtype, at(w, Affine::of(r, n) + Affine::of(k)));
        const int product = m.op(ScalarOp::Mul, dtype, a, m.load(dtype, at(x, Affine::of(k))));
        const int sum = m.reduced(ScalarOp::Add, dtype, product), most = m.reduced(ScalarOp::Max, dtype, product);
        const int moved = m.op(ScalarOp::Add, dtype, m.load(dtype, at(bias, Affine::of(r))), sum);
        m.store(dtype, at(y, Affine::of(r)), moved);
        m.store(dtype, at(largest, Affine::of(r)), most);
        p.add(m.build());
        const Program program = p.build();
        check(program);
        if (HasFatalFailure()) return;
        // Few of them meet in short vectors, since moves between distant lanes are slow.
        if (rows > (dtype == f32 ? 4 : 2)) continue;
        const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
        EXPECT_NE(source.find(dtype == f32 ? "fadd <4 x float>" : "fadd <2 x double>"), std::string::npos) << source;
      }
    }
  }
}

// Lanes behind a row are 0 in what is divided and in what it is divided by, and add nothing.
TEST_P(LlvmReductions, SumsOfQuotientsOfShortRows) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t rows : {1, 5, 16, 20}) {
      for (const std::int64_t n : {1, 2, 3, 4, 6, 8, 10, 12, 24}) {
        ProgramBuilder p(target());
        const int x = p.argument(dtype, rows * n + 1), w = p.argument(dtype, n);
        std::mt19937 random(4);
        const int c = p.constant(random_values(dtype, n, random));
        const int y = p.result(dtype, rows), before = p.result(dtype, rows);
        const Var r = p.var("r"), k = p.var("k");
        MapBuilder m({{r, {rows, -1}}, {k, {n, -1}}}, 1, 1);
        const Affine place = Affine::of(r, n) + Affine::of(k);
        const int divisor = m.load(dtype, at(c, Affine::of(k))), weight = m.load(dtype, at(w, Affine::of(k)));
        const auto quotient = [&](int a) {
          return m.op(ScalarOp::Div, dtype, m.op(ScalarOp::Mul, dtype, weight, a), divisor);
        };
        const int next = quotient(m.load(dtype, at(x, place + 1))), own = quotient(m.load(dtype, at(x, place)));
        const int a = m.reduced(ScalarOp::Add, dtype, next), b = m.reduced(ScalarOp::Add, dtype, own);
        m.store(dtype, at(y, Affine::of(r)), a);
        m.store(dtype, at(before, Affine::of(r)), b);
        p.add(m.build());
        check(p.build());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows are passed once where they are summed and written, as many vectors of them side by side as have room for their sums, and changed in place.
TEST_P(LlvmReductions, RowsAreSummedAndWrittenAtOnce) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t n : {1, 5, 16, 24, 40, 48, 100, 200}) {
      for (const int num_sums : {1, 2, 6, 13}) {
        constexpr std::int64_t rows = 6;
        ProgramBuilder p(target(), rows);
        const int x = p.argument(dtype, rows * n), gain = p.argument(dtype, n), scale = p.argument(dtype, rows);
        const int y = p.result(dtype, rows * n), sums = p.result(dtype, num_sums * n);
        const Var i = p.var("i"), r = p.var("r");
        MapBuilder zero({{i, {num_sums * n, -1}}}, 1, 0);
        zero.store(dtype, at(sums, Affine::of(i)), dtype == f32 ? zero.constant(0.0f) : zero.constant(0.0));
        p.add(zero.build());
        for (int step = 0; step < 2; ++step) {  // the second one finds what the first one wrote
          const Var column = p.var("column");
          MapBuilder m({{column, {n, -1}}, {r, {rows, rows_var}}}, 1, 0);
          const Affine place = Affine::of(r, n) + Affine::of(column);
          int value = m.load(dtype, at(step == 0 ? x : y, place));
          value = m.op(ScalarOp::Mul, dtype, value, m.load(dtype, at(gain, Affine::of(column))));
          value = m.op(ScalarOp::Div, dtype, value, m.load(dtype, at(scale, Affine::of(r))));
          m.store(dtype, at(y, place), value);
          std::vector<int> values = {value}, reduced;
          while (static_cast<int>(values.size()) < num_sums)
            values.push_back(m.op(ScalarOp::Add, dtype, values.back(), value));
          for (const int v : values) reduced.push_back(m.reduced(ScalarOp::Add, dtype, v));
          for (int k = 0; k < num_sums; ++k) {
            const Access sum = at(sums, Affine::of(column) + k * n);
            m.store(dtype, sum, m.op(ScalarOp::Add, dtype, m.load(dtype, sum), reduced[static_cast<std::size_t>(k)]));
          }
          p.add(m.build());
        }
        check(p.build(), {1, 4, 6});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Lanes take rows of a few numbers that lie side by side: whatever is reduced, how many rows there are, and what else a row reads.
TEST_P(LlvmReductions, RowsOfFewNumbers) {
  using ir::ScalarOp;
  for (const DType dtype : {f32, f64, i32})
    for (const std::int64_t n :
         dtype == f32 ? std::vector<std::int64_t>{1, 2, 3, 4, 7, 8, 9} : std::vector<std::int64_t>{3, 4})
      for (const bool has_outer : {false, true}) {
        constexpr std::int64_t rows = 37, outer = 3;
        ProgramBuilder p(target(), rows);
        const int x = p.argument(dtype, (has_outer ? outer : 1) * rows * n + 5), y = p.argument(dtype, rows * n);
        const int scale = p.argument(dtype, 1), by_row = p.argument(dtype, rows), by_number = p.argument(dtype, n);
        const Var o = p.var("o"), r = p.var("r"), k = p.var("k");
        const auto sums_of = [&](bool reads_rows, bool reads_numbers) {
          std::vector<Dim> dims{{r, {rows, rows_var}}, {k, {n, -1}}};
          if (has_outer) dims.insert(dims.begin(), {o, {outer, -1}});
          MapBuilder m(dims, has_outer ? 1 : 0, has_outer ? 1 : 0);
          const Affine place = Affine::of(r, n) + Affine::of(k), from = place + Affine::of(o, has_outer ? rows * n : 0);
          int a = m.op(ScalarOp::Sub, dtype, m.load(dtype, at(x, from + 5)), m.load(dtype, at(y, place)));
          if (reads_rows) a = m.op(ScalarOp::Mul, dtype, a, m.load(dtype, at(by_row, Affine::of(r))));
          if (reads_numbers) a = m.op(ScalarOp::Mul, dtype, a, m.load(dtype, at(by_number, Affine::of(k))));
          const int b = m.op(ScalarOp::Mul, dtype, a, m.load(dtype, at(scale)));
          const int sum = m.reduced(ScalarOp::Add, dtype, b), most = m.reduced(ScalarOp::Max, dtype, a);
          const int product = is_float(dtype) ? m.reduced(ScalarOp::Fma, dtype, a, b) : sum;
          for (const int reg : {sum, most, product})
            m.store(dtype, at(p.result(dtype, has_outer ? outer : 1), has_outer ? Affine::of(o) : Affine()), reg);
          p.add(m.build());
        };
        sums_of(false, false);
        sums_of(true, false);
        sums_of(false, true);
        check(p.build(), {0, 1, 2, 15, 16, 17, 32, 37});
        if (HasFatalFailure()) return;
      }
}

// Where it pays, operands are read as they lie: two loads of each vector in place of two of each number's.
TEST_P(LlvmReductions, RowsOfFewNumbersAreReadSideBySide) {
  constexpr std::int64_t rows = 64, n = 4;
  ProgramBuilder p(target());
  const int x = p.argument(f32, rows * n), y = p.argument(f32, rows * n), sum = p.result(f32, 1);
  const Var r = p.var("r"), k = p.var("k");
  MapBuilder m({{r, {rows, -1}}, {k, {n, -1}}}, 0, 0);
  const Affine place = Affine::of(r, n) + Affine::of(k);
  const int error = m.op(ScalarOp::Sub, f32, m.load(f32, at(x, place)), m.load(f32, at(y, place)));
  m.store(f32, at(sum), m.reduced(ScalarOp::Add, f32, m.op(ScalarOp::Mul, f32, error, error)));
  p.add(m.build());
  const Program program = p.build();
  check(program);
  const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
  std::size_t num_differences = 0;
  for (std::size_t i = source.find("fsub <16 x float>"); i != std::string::npos;
       i = source.find("fsub <16 x float>", i + 1))
    ++num_differences;
  EXPECT_EQ(num_differences, 4u) << source;  // a vector of each of the numbers of 16 rows, in one loop over these
}

// As many neighbours of each number as a row has, which a vector of rows would weave together, are read number by number as well.
TEST_P(LlvmReductions, ShiftedRowsOfFewNumbers) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {2, 3, 4, 8})
      for (const std::int64_t rows : {9, 16, 37}) {
        constexpr std::int64_t outer = 3;
        ProgramBuilder p(target());
        const std::int64_t width = rows * n + n - 1;
        const int x = p.argument(dtype, outer * width), sums = p.result(dtype, outer);
        const Var o = p.var("o"), r = p.var("r"), k = p.var("k");
        MapBuilder m({{o, {outer, -1}}, {r, {rows, -1}}, {k, {n, -1}}}, 1, 1);
        const Affine place = Affine::of(o, width) + Affine::of(r, n) + Affine::of(k);
        int difference = m.load(dtype, at(x, place));
        for (std::int64_t i = 1; i < n; ++i)
          difference = m.op(ir::ScalarOp::Sub, dtype, m.load(dtype, at(x, place + i)), difference);
        const int square = m.op(ir::ScalarOp::Mul, dtype, difference, difference);
        m.store(dtype, at(sums, Affine::of(o)), m.reduced(ir::ScalarOp::Add, dtype, square));
        p.add(m.build());
        check(p.build());
        if (HasFatalFailure()) return;
      }
}

TEST_P(LlvmReductions, ColumnSumsWithManyVectors) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t n : {3, 16, 48, 64, 100, 256}) {
      constexpr std::int64_t rows = 13;
      ProgramBuilder p(target(), rows);
      const int x = p.argument(dtype, rows * n), w = p.argument(dtype, rows), y = p.result(dtype, n);
      const int product = p.result(dtype, n), nan = p.result(dtype, n);
      const Var r = p.var("r"), i = p.var("i");
      MapBuilder m({{i, {n, -1}}, {r, {rows, rows_var}}}, 1, 0);
      const int a = m.load(dtype, at(x, Affine::of(r, n) + Affine::of(i)));
      const int b = m.op(ScalarOp::Mul, dtype, a, m.load(dtype, at(w, Affine::of(r))));
      const int root_of_b = m.op(ScalarOp::Sqrt, dtype, b);  // NaN where b is negative
      const int sum = m.reduced(ScalarOp::Add, dtype, b), all = m.reduced(ScalarOp::Mul, dtype, b);
      const int root = m.reduced(ScalarOp::Max, dtype, root_of_b);
      m.store(dtype, at(y, Affine::of(i)), sum);
      m.store(dtype, at(product, Affine::of(i)), all);
      m.store(dtype, at(nan, Affine::of(i)), root);
      p.add(m.build());
      check(p.build(), {0, 1, 12, 13});
    }
  }
}

// A sum that waits for a choice in each step takes three times as long. Lanes behind the last column take in what they find.
TEST_P(LlvmReductions, ColumnsAreNotChosenInEachStep) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {3, 5, 6, 7, 12, 20}) {
      constexpr std::int64_t rows = 40;
      ProgramBuilder p(target());
      const int x = p.argument(dtype, rows * n), y = p.result(dtype, n), most = p.result(dtype, n);
      const Var r = p.var("r"), i = p.var("i");
      MapBuilder m({{i, {n, -1}}, {r, {rows, -1}}}, 1, 0);
      const int a = m.load(dtype, at(x, Affine::of(r, n) + Affine::of(i)));
      const int sum = m.reduced(ScalarOp::Add, dtype, a), squares = m.reduced(ScalarOp::Fma, dtype, a, a);
      m.store(dtype, at(y, Affine::of(i)), sum);
      m.store(dtype, at(most, Affine::of(i)), squares);
      p.add(m.build());
      const Program program = p.build();
      check(program);
      if (HasFatalFailure()) return;
      const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
      EXPECT_EQ(source.find("select <"), std::string::npos) << source;
    }
}

// Of samples side by side each sums over lanes of its own numbers: their vectors are read as they lie, though each sum is written to a place far from the next.
TEST_P(LlvmReductions, SumsOfSamplesSideBySideReadVectors) {
  constexpr std::int64_t samples = 32, columns = 2, n = 40;
  ProgramBuilder p(target());
  const int x = p.argument(f32, n * columns * samples), y = p.result(f32, samples * columns);
  const Var s = p.var("s"), c = p.var("c"), k = p.var("k");
  MapBuilder m({{s, {samples, -1}}, {c, {columns, -1}}, {k, {n, -1}}}, 2, 2);
  const Affine place = Affine::of(k, columns * samples) + Affine::of(c, samples) + Affine::of(s);
  m.store(f32, at(y, Affine::of(s, columns) + Affine::of(c)), m.reduced(ScalarOp::Add, f32, m.load(f32, at(x, place))));
  p.add(m.build());
  const Program program = p.build();
  check(program);
  const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
  EXPECT_EQ(source.find("gather"), std::string::npos) << source;
  EXPECT_NE(source.find("load <16 x float>"), std::string::npos) << source;
}

TEST_P(LlvmReductions, BoolReductionsAndConstants) {
  constexpr std::int64_t rows = 7, n = 27;
  ProgramBuilder p(target());
  std::mt19937 random(9);
  const int x = p.constant(random_values(f32, rows * n, random));
  const int any = p.result(DType::Bool, rows), all = p.result(DType::Bool, rows), bits = p.result(i64, rows);
  const Var r = p.var("r"), i = p.var("i");
  MapBuilder m({{r, {rows, -1}}, {i, {n, -1}}}, 1, 1);
  const int a = m.load(f32, at(x, Affine::of(r, n) + Affine::of(i)));
  const int big = m.op(ScalarOp::Gt, DType::Bool, a, m.constant(1.9f));
  const int most = m.op(ScalarOp::Lt, DType::Bool, a, m.constant(1.9f));
  const int number = m.index(i64, Affine::of(i) + Affine::of(r, 100));
  const int o = m.reduced(ScalarOp::Or, DType::Bool, big), e = m.reduced(ScalarOp::And, DType::Bool, most);
  const int x_or = m.reduced(ScalarOp::Or, i64, number);
  m.store(DType::Bool, at(any, Affine::of(r)), o);
  m.store(DType::Bool, at(all, Affine::of(r)), e);
  m.store(i64, at(bits, Affine::of(r)), x_or);
  p.add(m.build());
  check(p.build());
}

INSTANTIATE_TEST_SUITE_P(Targets, LlvmReductions, testing::ValuesIn(hotloop::kernel::native_targets),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
