// Maps by the llvm backend.
#include <regex>
#include <sstream>

#include "llvm_backend.h"

#include "schedule/lower_math.h"

namespace hotloop::kernel {
namespace {

class LlvmMaps : public LlvmBackend {};

TEST_P(LlvmMaps, ElementwiseWithTails) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t n : {1, 3, 8, 15, 16, 17, 63, 64, 65, 130, 1000}) {
      ProgramBuilder p(target());
      const int x = p.argument(dtype, n), y = p.argument(dtype, n), z = p.result(dtype, n);
      const Var i = p.var("i");
      MapBuilder m({{i, {n, -1}}}, 1, 0);
      const int a = m.load(dtype, at(x, Affine::of(i))), b = m.load(dtype, at(y, Affine::of(i)));
      const int c = m.op(ScalarOp::Fma, dtype, a, b, a);
      m.store(dtype, at(z, Affine::of(i)), m.op(ScalarOp::Div, dtype, c, m.op(ScalarOp::Max, dtype, a, b)));
      p.add(m.build());
      check(p.build());
    }
  }
}

// What a masked store wrote cannot be read until it is in the cache, nor can what lies behind it, as the next row does.
TEST_P(LlvmMaps, RowsThatChangeInPlaceHaveNoMask) {
  constexpr std::int64_t rows = 16;
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {3, 7, 11, 13, 15, 27}) {
      ProgramBuilder p(target());
      const int weights = p.argument(dtype, n), given = p.argument(dtype, rows * n), x = p.result(dtype, rows * n);
      const Var all = p.var("all"), i = p.var("i"), j = p.var("j");
      MapBuilder copy({{all, {rows * n, -1}}}, 1, 0);
      copy.store(dtype, at(x, Affine::of(all)), copy.load(dtype, at(given, Affine::of(all))));
      p.add(copy.build());
      MapBuilder m({{i, {rows, -1}}, {j, {n, -1}}}, 2, 1);
      const Affine place = Affine::of(i, n) + Affine::of(j);
      const int old = m.load(dtype, at(x, place)), weight = m.load(dtype, at(weights, Affine::of(j)));
      m.store(dtype, at(x, place), m.op(ScalarOp::Mul, dtype, old, weight));
      p.add(m.build());
      check(p.build());
      if (HasFatalFailure()) return;
      const std::string source = compile_llvm(p.build(), {.keep_source = true, .cache_dir = {}})->source;
      EXPECT_EQ(source.find("masked.store"), std::string::npos) << n << source;
    }
}

// A loop that is masked throughout takes masks from what is left of its row. Only the code is looked at: a row that shows more takes 2 GB.
TEST_P(LlvmMaps, MasksCountBeyond32Bits) {
  const std::regex bounded("llvm.smin.i64\\(i64 %[0-9a-z.]*, i64 " + std::to_string(lanes_of(f32)) + "\\)");
  const auto is_bounded = [&](std::int64_t n) {
    ProgramBuilder p(target());
    const int x = p.argument(f32, n), y = p.result(f32, n);
    const Var i = p.var("i");
    MapBuilder m({{i, {n, -1}}}, 1, 0);
    const int a = m.load(f32, at(x, Affine::of(i)));
    int value = a;
    for (int k = 0; k < 100; ++k) value = m.op(ScalarOp::Fma, f32, value, a, a);
    m.store(f32, at(y, Affine::of(i)), value);
    p.add(m.build());
    return std::regex_search(compile_llvm(p.build(), {.keep_source = true, .cache_dir = {}})->source, bounded);
  };
  EXPECT_TRUE(is_bounded((std::int64_t{1} << 31) + 3));
  EXPECT_FALSE(is_bounded(100003)) << "one instruction more in each pass, for nothing";
}

TEST_P(LlvmMaps, EveryFloatOperation) {
  for (const DType dtype : {f32, f64}) {
    constexpr std::int64_t n = 45;
    ProgramBuilder p(target());
    const int x = p.argument(dtype, n), y = p.argument(dtype, n);
    const Var i = p.var("i");
    MapBuilder m({{i, {n, -1}}}, 1, 0);
    const int a = m.load(dtype, at(x, Affine::of(i))), b = m.load(dtype, at(y, Affine::of(i)));
    for (const ScalarOp op : {ScalarOp::Neg, ScalarOp::Abs, ScalarOp::Sign, ScalarOp::Floor, ScalarOp::Ceil,
                              ScalarOp::Rint, ScalarOp::Sqrt, ScalarOp::Copy}) {
      m.store(dtype, at(p.result(dtype, n), Affine::of(i)), m.op(op, dtype, a));
    }
    for (const ScalarOp op :
         {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Div, ScalarOp::Min, ScalarOp::Max}) {
      m.store(dtype, at(p.result(dtype, n), Affine::of(i)), m.op(op, dtype, a, b));
    }
    for (const ScalarOp op : {ScalarOp::Eq, ScalarOp::Ne, ScalarOp::Lt, ScalarOp::Le, ScalarOp::Gt, ScalarOp::Ge}) {
      const int test = m.op(op, DType::Bool, a, b);
      m.store(DType::Bool, at(p.result(DType::Bool, n), Affine::of(i)), test);
      m.store(dtype, at(p.result(dtype, n), Affine::of(i)), m.op(ScalarOp::Select, dtype, test, a, b));
    }
    for (const DType to : {DType::Bool, i32, u32, i64, f32, f64}) {
      m.store(to, at(p.result(to, n), Affine::of(i)), m.op(ScalarOp::Cast, to, a));
    }
    m.store(dtype, at(p.result(dtype, n), Affine::of(i)), m.op(ScalarOp::Fma, dtype, a, b, a));
    p.add(m.build());
    std::mt19937 random(7);
    std::vector<Array> arguments{random_values(dtype, n, random), random_values(dtype, n, random)};
    const double special[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-42, 2.5, -3.5, 3e9, -3e9, 1e19, -1e30};
    for (int k = 0; k < 13; ++k) arguments[0].set(k, special[k]);
    for (int k = 0; k < 13; ++k) arguments[1].set(13 - k, special[k]);
    arguments[0].set(20, -0.0), arguments[1].set(20, 0.0), arguments[0].set(21, 0.0), arguments[1].set(21, -0.0);
    check(p.build(), {1}, 1, arguments);
  }
}

TEST_P(LlvmMaps, EveryIntegerOperation) {
  for (const DType dtype : {i32, u32, i64}) {
    constexpr std::int64_t n = 37;
    ProgramBuilder p(target());
    const int x = p.argument(dtype, n), y = p.argument(dtype, n);
    const Var i = p.var("i");
    MapBuilder m({{i, {n, -1}}}, 1, 0);
    const int a = m.load(dtype, at(x, Affine::of(i))), b = m.load(dtype, at(y, Affine::of(i)));
    for (const ScalarOp op : {ScalarOp::Neg, ScalarOp::Abs, ScalarOp::Sign, ScalarOp::Not}) {
      m.store(dtype, at(p.result(dtype, n), Affine::of(i)), m.op(op, dtype, a));
    }
    for (const ScalarOp op :
         {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Div, ScalarOp::Rem, ScalarOp::Min, ScalarOp::Max,
          ScalarOp::And, ScalarOp::Or, ScalarOp::Xor, ScalarOp::Shl, ScalarOp::Shr}) {
      m.store(dtype, at(p.result(dtype, n), Affine::of(i)), m.op(op, dtype, a, b));
    }
    for (const ScalarOp op : {ScalarOp::Eq, ScalarOp::Lt, ScalarOp::Ge}) {
      m.store(DType::Bool, at(p.result(DType::Bool, n), Affine::of(i)), m.op(op, DType::Bool, a, b));
    }
    for (const DType to : {DType::Bool, i32, u32, i64, f32, f64}) {
      m.store(to, at(p.result(to, n), Affine::of(i)), m.op(ScalarOp::Cast, to, a));
    }
    p.add(m.build());
    std::mt19937 random(3);
    std::vector<Array> arguments{random_values(dtype, n, random), random_values(dtype, n, random)};
    const double low = dtype == i64 ? -9223372036854775808.0 : dtype == i32 ? -2147483648.0 : 0;
    arguments[0].set(0, low), arguments[1].set(0, dtype == u32 ? 1 : -1);
    arguments[0].set(1, 5), arguments[1].set(1, 0), arguments[0].set(2, 5), arguments[1].set(2, 63);
    arguments[0].set(3, 5), arguments[1].set(3, 31), arguments[0].set(4, dtype == u32 ? 5 : -5),
        arguments[1].set(4, 64);
    if (dtype == u32) {
      for (std::int64_t k = 0; k < n; ++k) arguments[1].set(k, std::fabs(arguments[1].at(k)) * 5);
    }
    check(p.build(), {1}, 1, arguments);
  }
}

TEST_P(LlvmMaps, StridesBroadcastsIndicesAndPredicates) {
  for (const std::int64_t n : {1, 5, 16, 20, 37}) {
    for (const int vector_dim : {0, 1, -1}) {
      constexpr std::int64_t rows = 6;
      ProgramBuilder p(target(), rows);
      const int x = p.argument(f32, rows * n * 3), bias = p.argument(f32, n), scale = p.argument(f32, rows);
      const int y = p.result(f32, rows * n), transposed = p.result(f32, rows * n), z = p.result(i32, rows * n);
      const Var r = p.var("r"), i = p.var("i");
      MapBuilder m({{r, {rows, rows_var}}, {i, {n, -1}}}, 2, vector_dim);
      const int a = m.load(f32, at(x, Affine::of(r, n * 3) + Affine::of(i, 3) + 1));
      const int b = m.load(f32, at(bias, Affine::of(i)));
      const int s = m.load(f32, at(scale, Affine::of(r)));
      const int value = m.op(ScalarOp::Fma, f32, a, s, b);
      const int column = m.index(i32, Affine::of(i, 3) + Affine::of(r, -2) + 7);
      const int odd = m.op(ScalarOp::Lt, DType::Bool, column, m.constant<std::int32_t>(30));
      // Outside the predicate the address is far outside the buffer.
      const int far = m.load(f32, at(x, Affine::of(r, n * 3) + Affine::of(i)), odd);
      m.store(f32, at(y, Affine::of(r, n) + Affine::of(i)), m.op(ScalarOp::Add, f32, value, far));
      m.store(f32, at(transposed, Affine::of(i, rows) + Affine::of(r)), value, odd);
      m.store(i32, at(z, Affine::of(r, n) + Affine::of(i)), column);
      p.add(m.build());
      check(p.build(), {1, 5, 6});
    }
  }
}

// Long rows for which nothing is written are passed over, short ones behind a mask.
TEST_P(LlvmMaps, RowsThatWriteNothingArePassedOver) {
  for (const std::int64_t n : {5, 64, 75, 160}) {
    constexpr std::int64_t rows = 7;
    ProgramBuilder p(target());
    const int x = p.argument(f32, rows * n * 3), y = p.result(f32, rows * n), z = p.result(i32, rows * n);
    const Var r = p.var("r"), i = p.var("i");
    MapBuilder m({{r, {rows, -1}}, {i, {n, -1}}}, 2, 1);
    const int wanted =
        m.op(ScalarOp::Lt, DType::Bool, m.index(i32, Affine::of(r, -2) + 7), m.constant<std::int32_t>(3));
    const int value = m.load(f32, at(x, Affine::of(r, n * 3) + Affine::of(i, 3)));
    m.store(f32, at(y, Affine::of(r, n) + Affine::of(i)), value, wanted);
    m.store(i32, at(z, Affine::of(r, n) + Affine::of(i)), m.index(i32, Affine::of(i, 2) + Affine::of(r)), wanted);
    p.add(m.build());
    check(p.build());
    if (HasFatalFailure()) return;
    const std::string source = compile_llvm(p.build(), {.keep_source = true, .cache_dir = {}})->source;
    if (n % 16 == 0) EXPECT_EQ(source.find("masked.store"), std::string::npos) << n << source;
  }
}

// How many rows there are is not known, but that they fill no vector: there is no code for whole vectors.
TEST_P(LlvmMaps, FewerRowsThanAVectorHasAreOnePass) {
  for (const std::int64_t most : {9, 70}) {
    ProgramBuilder p(target(), most);
    const int x = p.argument(f32, most * 3), y = p.result(f32, most);
    const Var r = p.var("r");
    MapBuilder m({{r, {most, rows_var}}}, 1, 0);
    const int value = m.load(f32, at(x, Affine::of(r, 3)));
    m.store(f32, at(y, Affine::of(r)), m.op(ScalarOp::Div, f32, m.constant<float>(1), value));
    p.add(m.build());
    check(p.build(), {1, 5, 9});
    if (HasFatalFailure()) return;
    const std::string source = compile_llvm(p.build(), {.keep_source = true, .cache_dir = {}})->source;
    int divisions = 0;
    std::istringstream lines(source);
    for (std::string line; std::getline(lines, line);)
      divisions += line.find("fdiv") != std::string::npos && !line.starts_with("declare");
    if (most == 9)
      EXPECT_EQ(divisions, 1) << source;
    else
      EXPECT_GT(divisions, 1);
  }
}

// A worker's own rows have room up to whole vectors where a tile takes whole vectors: code is there once, and what is the caller's is not touched
// behind its end.
TEST_P(LlvmMaps, TailsOfAWorkersOwnRowsAreWholeVectors) {
  constexpr int most_steps = 50;
  const auto num_divisions = [&](DType dtype, std::int64_t most, int steps) {
    ProgramBuilder p(target(), most);
    const int x = p.argument(dtype, most), y = p.result(dtype, most), flags = p.result(DType::Bool, most);
    const int own = p.worker(dtype, most), next = p.worker(dtype, 2 * most), positive = p.worker(DType::Bool, most);
    const auto add_map = [&](const auto& body) {
      const Var r = p.var("r");
      MapBuilder m({{r, {most, rows_var}}}, 1, 0);
      body(m, r);
      p.add(m.build());
    };
    add_map([&](MapBuilder& m, Var r) { m.store(dtype, at(own, Affine::of(r)), m.load(dtype, at(x, Affine::of(r)))); });
    add_map([&](MapBuilder& m, Var r) {
      const int first = m.load(dtype, at(own, Affine::of(r)));
      int value = first;
      for (int i = 0; i < steps; ++i)
        value = m.op(ScalarOp::Div, dtype, m.op(ScalarOp::Add, dtype, value, first), first);
      m.store(DType::Bool, at(positive, Affine::of(r)), m.op(ScalarOp::Gt, DType::Bool, value, first));
      m.store(dtype, at(next, Affine::of(r, 2)), value);
    });
    add_map([&](MapBuilder& m, Var r) {
      int value = m.load(dtype, at(next, Affine::of(r, 2)));
      const int own_value = m.load(dtype, at(own, Affine::of(r)));
      for (int i = 0; i < steps; ++i)
        value = m.op(ScalarOp::Sub, dtype, m.op(ScalarOp::Mul, dtype, value, own_value), own_value);
      m.store(dtype, at(y, Affine::of(r)), value);
      m.store(DType::Bool, at(flags, Affine::of(r)), m.load(DType::Bool, at(positive, Affine::of(r))));
    });
    check(p.build(), {1, 5, 16, 23, most});
    const std::string source = compile_llvm(p.build(), {.keep_source = true, .cache_dir = {}})->source;
    int count = 0;
    for (std::size_t found = source.find("fdiv"); found != std::string::npos; found = source.find("fdiv", found + 1))
      ++count;
    return count;
  };
  for (const DType dtype : {f32, f64}) {
    EXPECT_EQ(num_divisions(dtype, 32, most_steps), most_steps);
    EXPECT_LT(num_divisions(dtype, 32, 1), num_divisions(dtype, 35, 1));
  }
}

// The chain of a function is as long as what a processor looks ahead: two vectors go through it side by side, where whole pairs of vectors are
// known, and an instruction of the one is followed by that of the other.
TEST_P(LlvmMaps, TwoVectorsGoThroughAFunctionSideBySide) {
  if (GetParam() != std::string("avx512")) GTEST_SKIP() << "elsewhere a vector is two registers or four";
  const auto loads_before_the_first_division = [&](std::int64_t n) {
    ProgramBuilder p(target());
    const int x = p.argument(f64, n), y = p.result(f64, n);
    const Var i = p.var("i");
    MapBuilder m({{i, {n, -1}}}, 1, 0);
    m.store(f64, at(y, Affine::of(i)), m.op(ScalarOp::Tanh, f64, m.load(f64, at(x, Affine::of(i)))));
    p.add(m.build());
    Program program = p.build();
    lower_math(program);
    check(program);
    const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
    const std::size_t division = source.find("fdiv");
    int loads = 0;
    for (std::size_t at = source.find("load <8 x double>"); at < division;
         at = source.find("load <8 x double>", at + 1))
      ++loads;
    return loads;
  };
  EXPECT_EQ(loads_before_the_first_division(64), 2);
  EXPECT_EQ(loads_before_the_first_division(8), 1);
}

TEST_P(LlvmMaps, IndirectAccess) {
  for (const DType index : {i32, u32, i64}) {
    for (const int vector_dim : {0, 1}) {
      constexpr std::int64_t rows = 19, n = 21, table_rows = 9;
      ProgramBuilder p(target());
      const int table = p.argument(f32, table_rows * n), which = p.argument(index, rows), out = p.result(f32, rows * n);
      const int by_column = p.argument(index, n), gathered = p.result(f32, rows * n);
      const Var r = p.var("r"), i = p.var("i");
      MapBuilder m({{r, {rows, -1}}, {i, {n, -1}}}, 2, vector_dim);
      const int row = m.load(index, at(which, Affine::of(r))), column = m.load(index, at(by_column, Affine::of(i)));
      const int x = m.load(f32, at(table, Affine::of(i), {{row, n}}));
      m.store(f32, at(out, Affine::of(r, n) + Affine::of(i)), x);
      const int both = m.load(f32, at(table, Affine(0), {{row, n}, {column, 1}}));
      m.store(f32, at(gathered, Affine::of(i), {{m.index(index, Affine::of(r)), n}}), m.op(ScalarOp::Neg, f32, both));
      p.add(m.build());
      Array rows_array(index, Shape{rows}), columns(index, Shape{n});
      for (std::int64_t k = 0; k < rows; ++k) rows_array.set(k, static_cast<double>(k * 5 % table_rows));
      for (std::int64_t k = 0; k < n; ++k) columns.set(k, static_cast<double>(k * 8 % n));
      std::mt19937 random(5);
      check(p.build(), {1}, 1, {random_values(f32, table_rows * n, random), rows_array, columns});
    }
  }
}

TEST_P(LlvmMaps, ScalarMapsRunInOrder) {
  constexpr std::int64_t n = 20, bins = 4;
  ProgramBuilder p(target());
  const int which = p.argument(i32, n), x = p.argument(f32, n), sums = p.result(f32, bins);
  const Var i = p.var("i");
  MapBuilder clear({{i, {bins, -1}}}, 1, 0);
  clear.store(f32, at(sums, Affine::of(i)), clear.constant(0.0f));
  p.add(clear.build());
  MapBuilder m({{i, {n, -1}}}, 1, -1);  // a scatter-add
  const int bin = m.load(i32, at(which, Affine::of(i)));
  const int old = m.load(f32, at(sums, Affine(0), {{bin, 1}}));
  const int positive = m.op(ScalarOp::Gt, DType::Bool, m.load(f32, at(x, Affine::of(i))), m.constant(-1.5f));
  const int sum = m.op(ScalarOp::Add, f32, old, m.load(f32, at(x, Affine::of(i)), positive));
  m.store(f32, at(sums, Affine(0), {{bin, 1}}), sum, positive);
  p.add(m.build());
  Array bins_of(i32, Shape{n});
  for (std::int64_t k = 0; k < n; ++k) bins_of.set(k, static_cast<double>(k * k % bins));
  check(p.build(), {1}, 1, {bins_of});
}

// What is written only under a condition is read and computed under it too: in one branch, and by addresses that wait for nothing.
TEST_P(LlvmMaps, ScalarMapsBranchOnce) {
  for (const DType dtype : {f32, f64, i32}) {
    constexpr std::int64_t n = 300, bins = 23;
    ProgramBuilder p(target());
    const int at_which = p.argument(i32, n), weights = p.argument(dtype, n), table = p.result(dtype, bins);
    const Var i = p.var("i"), b = p.var("b");
    MapBuilder start({{b, {bins, -1}}}, 1, 0);
    start.store(dtype, at(table, Affine::of(b)), start.load(dtype, at(weights, Affine::of(b))));
    MapBuilder m({{i, {n, -1}}}, 1, -1);
    const int place = m.load(i32, at(at_which, Affine::of(i)));
    const int is_there = m.op(ScalarOp::And, DType::Bool, m.op(ScalarOp::Ge, DType::Bool, place, m.constant(0)),
                              m.op(ScalarOp::Lt, DType::Bool, place, m.constant(static_cast<std::int32_t>(bins))));
    const int old = m.load(dtype, at(table, {}, {{place, 1}}), is_there);
    const int sum = m.op(ScalarOp::Add, dtype, old, m.load(dtype, at(weights, Affine::of(i))));
    m.store(dtype, at(table, {}, {{place, 1}}), sum, is_there);
    p.add(start.build());
    p.add(m.build());
    const Program program = p.build();
    check(program);
    const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
    EXPECT_EQ(source.find("select i1"), std::string::npos) << source;
  }
}

TEST_P(LlvmMaps, MixedElementSizes) {
  for (const std::int64_t n : {7, 8, 33}) {
    ProgramBuilder p(target());
    const int x = p.argument(f32, n), flag = p.argument(DType::Bool, n), y = p.result(f64, n), z = p.result(f32, n);
    const int any = p.result(DType::Bool, n), bits = p.result(i32, n);
    const Var i = p.var("i");
    MapBuilder m({{i, {n, -1}}}, 1, 0);
    const int a = m.load(f32, at(x, Affine::of(i)));
    const int f = m.load(DType::Bool, at(flag, Affine::of(i)));
    const int wide = m.op(ScalarOp::Cast, f64, a);
    const int third = m.op(ScalarOp::Div, f64, wide, m.constant(3.0));
    m.store(f64, at(y, Affine::of(i)), m.op(ScalarOp::Select, f64, f, third, wide));
    m.store(f32, at(z, Affine::of(i)), m.op(ScalarOp::Cast, f32, third));
    m.store(i32, at(bits, Affine::of(i)), m.op(ScalarOp::Bitcast, i32, a));
    const int small = m.op(ScalarOp::Lt, DType::Bool, a, m.constant(0.25f));
    m.store(DType::Bool, at(any, Affine::of(i)),
            m.op(ScalarOp::Xor, DType::Bool, small, m.op(ScalarOp::Not, DType::Bool, f)));
    p.add(m.build());
    check(p.build());
  }
}

// Random nests: dims of random extents (run-time ones among them), random strides, random straight-line code.
TEST_P(LlvmMaps, RandomMaps) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    constexpr std::int64_t max_rows = 6;
    ProgramBuilder p(target(), max_rows);
    const int num_dims = 1 + pick(3), num_outer = pick(3) == 0 ? pick(num_dims + 1) : num_dims;
    std::vector<Dim> dims;
    std::int64_t size = 1;
    std::vector<std::int64_t> extents;
    for (int d = 0; d < num_dims; ++d) {
      constexpr std::int64_t choices[] = {1, 2, 5, 8, 16, 33, 70};
      const bool run_time = pick(4) == 0;
      extents.push_back(run_time ? max_rows : choices[pick(7)]);
      dims.push_back({p.var("d" + std::to_string(d)), {extents.back(), run_time ? rows_var : -1}});
      size *= extents.back();
    }
    const int vector_dim = pick(num_dims + 1) - 1;
    const DType dtype = pick(2) == 0 ? f32 : f64;
    const auto dense = [&](int count) {  // row-major over the first `count` dims
      Affine index;
      std::int64_t stride = 1;
      for (int d = count - 1; d >= 0; --d) {
        index = index + Affine::of(dims[static_cast<std::size_t>(d)].var, stride);
        stride *= extents[static_cast<std::size_t>(d)];
      }
      return index;
    };
    MapBuilder m(dims, num_outer, vector_dim);
    std::vector<int> values;
    const int big = p.argument(dtype, 4 * size + 8);
    for (int l = 0; l < 3; ++l) {
      Affine index = l == 0 ? dense(num_dims) : Affine(pick(4));
      for (int d = 0; l > 0 && d < num_dims; ++d) {
        if (pick(2) == 0)
          index =
              index + Affine::of(dims[static_cast<std::size_t>(d)].var,
                                 dense(num_dims).coefficient(dims[static_cast<std::size_t>(d)].var) * (1 + pick(2)));
      }
      values.push_back(m.load(dtype, at(big, index)));
    }
    const int count = 2 + pick(12);
    for (int o = 0; o < count; ++o) {
      constexpr ScalarOp ops[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Max, ScalarOp::Min};
      const int a = values[random() % values.size()], b = values[random() % values.size()];
      if (pick(4) == 0) {
        values.push_back(m.op(ScalarOp::Select, dtype, m.op(ScalarOp::Lt, DType::Bool, a, b), b, values[0]));
      } else {
        values.push_back(m.op(ops[pick(5)], dtype, a, b));
      }
    }
    if (num_outer < num_dims) {
      const int sum = m.reduced(ScalarOp::Add, dtype, values.back()), max = m.reduced(ScalarOp::Max, dtype, values[0]);
      values = {sum, max, m.op(ScalarOp::Sub, dtype, max, sum)};
    }
    std::int64_t outer_size = 1;
    for (int d = 0; d < num_outer; ++d) outer_size *= extents[static_cast<std::size_t>(d)];
    for (const int v : {values[0], values.back()}) m.store(dtype, at(p.result(dtype, outer_size), dense(num_outer)), v);
    p.add(m.build());
    check(p.build(), {1, 5, 6});
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LlvmMaps, testing::ValuesIn(hotloop::kernel::native_targets),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
