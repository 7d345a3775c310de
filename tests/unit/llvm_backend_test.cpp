// The llvm backend against the reference interpreter, to the bit, on every target this machine runs.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "kernel_builder.h"
#include "kernel_reference.h"

namespace hotloop::kernel {
namespace {

constexpr DType f32 = DType::F32, f64 = DType::F64, i32 = DType::I32, i64 = DType::I64, u32 = DType::U32;

bool machine_runs(const std::string& target) {
  if (target == "avx512") {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  }
  return target != "avx2" || (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
}

Array random_values(DType dtype, std::int64_t n, std::mt19937& random) {
  Array array(dtype, Shape{n});
  std::uniform_real_distribution<double> real(-2, 2);
  for (std::int64_t i = 0; i < n; ++i) {
    array.set(i, dtype == DType::Bool ? double(random() & 1)
                 : is_float(dtype)    ? real(random)
                                      : std::floor(real(random) * 8));
  }
  return array;
}

class LlvmBackend : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!machine_runs(GetParam())) GTEST_SKIP() << "THIS MACHINE DOES NOT RUN " << GetParam() << ": NOT TESTED";
  }
  Target target() const { return target_named(GetParam()); }

  // Random arguments; results of the kernel and of the reference must agree to the bit, for each number of rows.
  void check(const Program& program, const std::vector<std::int64_t>& all_rows = {1}, int num_workers = 1,
             const std::vector<Array>& given = {}) {
    const auto kernel = compile_llvm(program, {.keep_source = true, .cache_dir = {}});
    ASSERT_NE(kernel->function(), nullptr);
    EXPECT_GT(kernel->code_bytes, 0u);
    for (const std::int64_t rows : all_rows) {
      std::mt19937 random(static_cast<unsigned>(42 + rows));
      std::vector<Array> arguments = given;
      for (std::size_t i = given.size(); i < program.arguments.size(); ++i) {
        arguments.push_back(random_values(program.arguments[i].dtype, program.arguments[i].shape.size(), random));
      }
      std::vector<Array> got, want;
      for (const ValueType& type : program.results) {
        got.push_back(Array::full(type.dtype, type.shape, 77));
        want.push_back(Array::full(type.dtype, type.shape, 77));
      }
      run_kernel(program, kernel->function(), arguments, got, rows, num_workers);
      Reference(program, arguments, want, rows).run();
      for (std::size_t r = 0; r < got.size(); ++r) {
        for (std::int64_t i = 0; i < got[r].size(); ++i) {
          const double x = got[r].at(i), y = want[r].at(i);
          const bool same =
              std::isnan(x) ? std::isnan(y) : std::bit_cast<std::int64_t>(x) == std::bit_cast<std::int64_t>(y);
          ASSERT_TRUE(same) << "result " << r << " element " << i << ": " << x << " is not " << y << " (rows " << rows
                            << ")\n"
                            << kernel->source.substr(0, 6000);
        }
      }
    }
  }
};

// ---- Map

TEST_P(LlvmBackend, ElementwiseWithTails) {
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

TEST_P(LlvmBackend, EveryFloatOperation) {
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
         {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Div, ScalarOp::Rem, ScalarOp::Min, ScalarOp::Max}) {
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

TEST_P(LlvmBackend, EveryIntegerOperation) {
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

TEST_P(LlvmBackend, StridesBroadcastsIndicesAndPredicates) {
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

TEST_P(LlvmBackend, IndirectAccess) {
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

TEST_P(LlvmBackend, ScalarMapsRunInOrder) {
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

TEST_P(LlvmBackend, MixedElementSizes) {
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

TEST_P(LlvmBackend, LibraryFunctionsAgreeWithLibm) {
  for (const DType dtype : {f32, f64}) {
    for (const int vector_dim : {0, -1}) {
      constexpr std::int64_t n = 29;
      ProgramBuilder p(target());
      const int x = p.argument(dtype, n);
      const Var i = p.var("i");
      MapBuilder m({{i, {n, -1}}}, 1, vector_dim);
      const int a = m.load(dtype, at(x, Affine::of(i)));
      const ScalarOp ops[] = {ScalarOp::Exp, ScalarOp::Expm1,   ScalarOp::Sin, ScalarOp::Cos,  ScalarOp::Tanh,
                              ScalarOp::Erf, ScalarOp::Sigmoid, ScalarOp::Log, ScalarOp::Log1p};
      double (*reference[])(double) = {std::exp,
                                       std::expm1,
                                       std::sin,
                                       std::cos,
                                       std::tanh,
                                       std::erf,
                                       [](double v) { return 1 / (1 + std::exp(-v)); },
                                       std::log,
                                       std::log1p};
      for (const ScalarOp op : ops) m.store(dtype, at(p.result(dtype, n), Affine::of(i)), m.op(op, dtype, a));
      m.store(dtype, at(p.result(dtype, n), Affine::of(i)), m.op(ScalarOp::Pow, dtype, a, a));
      p.add(m.build());
      const Program program = p.build();
      std::mt19937 random(11);
      Array argument = random_values(dtype, n, random);
      for (std::int64_t k = 0; k < n; ++k) argument.set(k, std::fabs(argument.at(k)) + 0.01);
      std::vector<Array> results;
      for (const ValueType& type : program.results) results.push_back(Array::zeros(type.dtype, type.shape));
      const auto kernel = compile_llvm(program);
      run_kernel(program, kernel->function(), {argument}, results);
      const double ulp = dtype == f32 ? 1.2e-7 : 2.3e-16;
      for (std::int64_t k = 0; k < n; ++k) {
        const double v = argument.at(k);
        for (std::size_t o = 0; o < 9; ++o) {
          const double want = reference[o](v);
          EXPECT_NEAR(results[o].at(k), want, 5 * ulp * std::fabs(want)) << ir::name_of(ops[o]) << " of " << v;
        }
        EXPECT_NEAR(results[9].at(k), std::pow(v, v), 5 * ulp * std::pow(v, v));
      }
    }
  }
}

TEST_P(LlvmBackend, Reductions) {
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
        const int mean = m.op(ScalarOp::Mul, dtype, sum, squares);
        for (const int reg : {sum, mean, most, least}) m.store(dtype, at(p.result(dtype, rows), Affine::of(r)), reg);
        p.add(m.build());
        check(p.build(), {1, 4, 5});
      }
    }
  }
}

TEST_P(LlvmBackend, ColumnSumsWithManyVectors) {
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

TEST_P(LlvmBackend, BoolReductionsAndConstants) {
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

// Random nests: dims of random extents (run-time ones among them), random strides, random straight-line code.
TEST_P(LlvmBackend, RandomMaps) {
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

// ---- Dot and Pack

struct DotCase {
  DType dtype = f32;
  std::int64_t m = 1, n = 1;
  std::vector<std::int64_t> k;  // one number a segment
  bool packed = false, init = true, run_time_m = false;
  std::int64_t b_n = 1, c_n = 1;
};

Program dot_program(const Target& target, const DotCase& c) {
  ProgramBuilder p(target, c.m);
  Dot dot;
  dot.name = "dot";
  dot.dtype = c.dtype;
  dot.m = {c.m, c.run_time_m ? rows_var : -1};
  dot.n = {c.n, -1};
  const std::int64_t lanes = lanes_of(c.dtype), width = (c.n + lanes - 1) / lanes * lanes;
  for (std::size_t s = 0; s < c.k.size(); ++s) {
    const std::int64_t k = c.k[s];
    const int a = p.argument(c.dtype, c.m * (k + 2) + 1);
    const int b = p.argument(c.dtype, k * c.n * c.b_n + c.b_n);
    DotSegment segment;
    const bool a_transposed = s == 1;  // segments differ in the layout of A
    segment.a = at(a, Affine(1));
    segment.a_m = a_transposed ? 1 : k + 2;
    const std::int64_t b_k = c.b_n == 1 ? c.n : 1, b_n = c.b_n == 1 ? 1 : k;
    segment.b = at(b);
    segment.b_n = b_n;
    segment.k = {{{k, -1}, a_transposed ? c.m : 1, b_k}};
    if (c.packed) {
      Pack pack;
      pack.source = at(b);
      pack.k_stride = b_k;
      pack.n_stride = b_n;
      pack.k = k;
      pack.n = c.n;
      pack.target = p.shared(c.dtype, k * width);
      pack.dtype = c.dtype;
      segment.b = at(pack.target);
      segment.packed = true;
      p.add(Single{{{pack}}});
      p.add(Barrier{});
    }
    dot.segments.push_back(segment);
  }
  dot.c = at(p.result(c.dtype, c.m * (c.n + 1) * c.c_n));
  dot.c_m = c.c_n == 1 ? c.n + 1 : 1;
  dot.c_n = c.c_n == 1 ? 1 : c.m;
  if (c.init) {
    dot.init = at(p.argument(c.dtype, c.n));
    dot.init_m = 0;
    dot.init_n = 1;
  }
  p.add(dot);
  return p.build();
}

TEST_P(LlvmBackend, DotShapes) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t m : {1, 2, 3, 5, 6, 7, 12, 13}) {
      for (const std::int64_t n : {1, 3, 8, 16, 17, 40, 64, 100, 130, 200}) {
        const bool packed = (m + n) % 2 == 0;
        check(dot_program(target(), {dtype, m, n, {1 + (m * n) % 9}, packed, n % 3 != 0}));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(LlvmBackend, DotDepths) {
  for (const std::int64_t k : {1, 2, 3, 4, 5, 7, 8, 31, 72, 600}) {
    for (const bool packed : {false, true}) check(dot_program(target(), {f32, 12, 96, {k}, packed}));
  }
}

TEST_P(LlvmBackend, DotSegments) {
  for (const bool packed : {false, true}) {
    for (const DType dtype : {f32, f64}) {
      check(dot_program(target(), {dtype, 12, 48, {8, 16}, packed}));
      check(dot_program(target(), {dtype, 5, 70, {3, 7, 12}, packed, false}));
    }
  }
}

TEST_P(LlvmBackend, DotRunTimeRows) {
  for (const std::int64_t bound : {1, 3, 4, 12, 17}) {
    for (const std::int64_t n : {1, 24, 64, 128, 136}) {
      const Program program = dot_program(target(), {f32, bound, n, {9, 4}, true, true, true});
      std::vector<std::int64_t> rows(static_cast<std::size_t>(bound + 1));
      std::iota(rows.begin(), rows.end(), 0);
      check(program, rows);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(LlvmBackend, DotStrides) {
  for (const std::int64_t n : {1, 5, 33}) {
    for (const std::int64_t m : {4, 18}) {
      check(dot_program(target(), {f32, m, n, {10, 6}, false, true, false, 2}));            // B by columns
      check(dot_program(target(), {f64, m, n, {10}, false, false, false, 2, 2}));           // and C
      check(dot_program(target(), {f32, m, n, {10, 3}, true, true, true, 2, 2}), {m - 1});  // packed from columns
    }
  }
}

// dW += x^T dz over all steps and a run-time number of rows: three k dims, A contiguous along m, accumulating in place.
TEST_P(LlvmBackend, DotOverStepsAndRowsInPlace) {
  for (const std::int64_t n : {20, 64, 160}) {
    constexpr std::int64_t steps = 5, rows = 7, m = 11;
    ProgramBuilder p(target(), rows);
    const int x = p.argument(f32, steps * rows * m), z = p.argument(f32, steps * rows * n), w = p.result(f32, m * n);
    Dot dot;
    dot.m = {m, -1};
    dot.n = {n, -1};
    dot.segments.push_back({at(x), at(z), 1, 1, {{{steps, -1}, rows * m, rows * n}, {{rows, rows_var}, m, n}}, false});
    dot.init = dot.c = at(w);
    dot.init_m = dot.c_m = n;
    dot.init_n = dot.c_n = 1;
    p.add(dot);
    p.add(dot);
    check(p.build(), {1, 6, 7});
  }
}

// A narrow output with a transposed A takes the other operand's rows as vectors.
TEST_P(LlvmBackend, DotNarrowOutputs) {
  for (const std::int64_t m : {3, 16, 50}) {
    ProgramBuilder p(target());
    constexpr std::int64_t k = 13, n = 2;
    const int a = p.argument(f32, k * m), b = p.argument(f32, k * n), c = p.result(f32, m * n);
    Dot dot;
    dot.m = {m, -1};
    dot.n = {n, -1};
    dot.segments.push_back({at(a), at(b), 1, 1, {{{k, -1}, m, n}}, false});
    dot.c = at(c);
    dot.c_m = n;
    p.add(dot);
    check(p.build());
  }
}

// ---- Control flow

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

TEST_P(LlvmBackend, GridWithOddRows) {
  for (const std::int64_t max_rows : {1, 11, 30}) {
    const Program program = grid_program(target(), max_rows);
    check(program, {1, max_rows / 2 + 1, max_rows});
  }
}

TEST_P(LlvmBackend, WorkersMeetAtBarriers) {
  for (const int workers : {2, 3}) {
    check(grid_program(target(), 30), {29, 30, 29, 3, 29, 29, 30}, workers);
  }
}

TEST_P(LlvmBackend, SplitMapsCoverEveryPoint) {
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

TEST_P(LlvmBackend, LoopsThatStopAndLets) {
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

TEST_P(LlvmBackend, CancelLeavesAnOuterLoop) {
  ProgramBuilder p(target());
  const int count = p.result(i64, 1);
  const Var t = p.var("t");
  MapBuilder add({}, 0, -1);
  add.store(i64, at(count), add.op(ScalarOp::Add, i64, add.load(i64, at(count)), add.constant<std::int64_t>(1)));
  p.add(For{t, {std::int64_t{1} << 40, -1}, false, {}, {}, {{add.build()}}});
  const Program program = p.build();
  const auto kernel = compile_llvm(program);
  std::vector<Array> results{Array::zeros(i64, Shape{1})};
  std::int32_t cancel = 0;
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::atomic_ref(cancel).store(1);
  });
  run_kernel(program, kernel->function(), {}, results, 1, 1, &cancel);
  canceller.join();
  EXPECT_GT(results[0].at(0), 0);
  EXPECT_LT(results[0].at(0), static_cast<double>(std::int64_t{1} << 40));
}

TEST_P(LlvmBackend, CancelledWorkersDoNotWaitForEachOther) {
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

// ---- What is compiled

std::size_t functions_in(const std::string& source, const std::string& name) {
  std::size_t count = 0;
  for (std::size_t at = source.find("define internal void @" + name); at != std::string::npos;
       at = source.find("define internal void @" + name, at + 1)) {
    ++count;
  }
  return count;
}

TEST_P(LlvmBackend, EqualStatementsShareTheirCode) {
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

TEST_P(LlvmBackend, DiskCache) {
  const std::string directory = testing::TempDir() + "hotloop_llvm_cache_" + GetParam() + std::to_string(::getpid());
  std::filesystem::remove_all(directory);
  const Program program = dot_program(target(), {f32, 6, 32, {5}, true});
  const BackendOptions options{.keep_source = false, .cache_dir = directory};
  EXPECT_FALSE(compile_llvm(program, options)->from_cache);
  EXPECT_EQ(std::filesystem::status(directory).permissions(), std::filesystem::perms::owner_all);
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

INSTANTIATE_TEST_SUITE_P(Targets, LlvmBackend, testing::Values("avx512", "avx2", "portable"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
