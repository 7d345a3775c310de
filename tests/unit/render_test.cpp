// Every statement and instruction of kernel IR through the C renderer, against the same computed here by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <thread>

#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "kernel_builder.h"
#include "kernel_reference.h"
#include "targets.h"

namespace hotloop::kernel {
namespace {

Extent fixed(std::int64_t n) { return {n, -1}; }

std::vector<Array> run_c(const Program& program, const std::vector<Array>& arguments, std::int64_t rows = 1,
                         int workers = 1) {
  verify(program);
  const auto kernel = compile_c(program);
  std::vector<Array> results;
  for (const ValueType& type : program.results) results.push_back(Array::zeros(type.dtype, type.shape));
  run_kernel(program, kernel->function(), arguments, results, rows, workers);
  return results;
}

template <class T> std::vector<T> values(const Array& a) { return {a.data<T>().begin(), a.data<T>().end()}; }
template <class T> Array array(const std::vector<T>& v) {
  return Array::from(v, Shape{static_cast<std::int64_t>(v.size())});
}
std::vector<float> ramp(std::int64_t n, float start = -1, float step = 0.37f) {
  std::vector<float> v;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(start + step * static_cast<float>(i * 7 % 23));
  return v;
}

// op over (a, b, c), elementwise, with the operands' dtype T and the result's R.
template <class R, class T>
std::vector<R> apply(ScalarOp op, const std::vector<T>& a, const std::vector<T>& b = {}, const std::vector<T>& c = {}) {
  ProgramBuilder builder(host_target());
  const auto n = static_cast<std::int64_t>(a.size());
  const Var i = builder.var("i");
  MapBuilder map({{i, fixed(n)}}, 1, 0);
  std::vector<Array> arguments;
  int regs[3] = {-1, -1, -1};
  for (const std::vector<T>* v : {&a, &b, &c}) {
    if (v->empty()) break;
    const std::size_t k = arguments.size();
    arguments.push_back(array(*v));
    regs[k] = map.load(dtype_of<T>(), at(builder.argument(dtype_of<T>(), n), Affine::of(i)));
  }
  const int y = builder.result(dtype_of<R>(), n);
  map.store(dtype_of<R>(), at(y, Affine::of(i)), map.op(op, dtype_of<R>(), regs[0], regs[1], regs[2]));
  builder.add(Single{{{map.build()}}});
  return values<R>(run_c(builder.build(), arguments)[0]);
}

constexpr float inf = std::numeric_limits<float>::infinity();
const float nan_value = std::numeric_limits<float>::quiet_NaN();

TEST(Render, FloatOperations) {
  using V = std::vector<float>;
  const V a = {-2.5f, -0.5f, 0, 1.5f, 2.5f, inf, 7.25f}, b = {2, -4, 0.5f, 1.5f, -3, 1, 2}, c = {1, 2, 3, 4, 5, 6, 7};
  const auto check = [&](ScalarOp op, const std::function<float(float, float, float)>& f) {
    const int n = ir::num_operands(op);
    const V got = apply<float>(op, a, n > 1 ? b : V{}, n > 2 ? c : V{});
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_EQ(got[i], f(a[i], b[i], c[i])) << ir::name_of(op) << " of " << a[i];
  };
  check(ScalarOp::Neg, [](float x, float, float) { return -x; });
  check(ScalarOp::Abs, [](float x, float, float) { return std::fabs(x); });
  check(ScalarOp::Sign, [](float x, float, float) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; });
  check(ScalarOp::Floor, [](float x, float, float) { return std::floor(x); });
  check(ScalarOp::Ceil, [](float x, float, float) { return std::ceil(x); });
  check(ScalarOp::Rint, [](float x, float, float) { return std::nearbyint(x); });
  check(ScalarOp::Copy, [](float x, float, float) { return x; });
  check(ScalarOp::Add, [](float x, float y, float) { return x + y; });
  check(ScalarOp::Sub, [](float x, float y, float) { return x - y; });
  check(ScalarOp::Mul, [](float x, float y, float) { return x * y; });
  check(ScalarOp::Div, [](float x, float y, float) { return x / y; });
  check(ScalarOp::Min, [](float x, float y, float) { return y < x ? y : x; });
  check(ScalarOp::Max, [](float x, float y, float) { return x < y ? y : x; });
  check(ScalarOp::Fma, [](float x, float y, float z) { return std::fma(x, y, z); });
  EXPECT_EQ(apply<float>(ScalarOp::Sqrt, V{2, 9, 0}), (V{std::sqrt(2.0f), 3, 0}));
}

TEST(Render, MinAndMaxPropagateNaN) {
  using V = std::vector<float>;
  for (const ScalarOp op : {ScalarOp::Min, ScalarOp::Max}) {
    const V got = apply<float>(op, V{nan_value, 1, nan_value}, V{1, nan_value, nan_value});
    for (const float y : got) EXPECT_TRUE(std::isnan(y)) << ir::name_of(op);
    EXPECT_TRUE(std::signbit(apply<float>(op, V{-0.0f}, V{0.0f})[0])) << "a tie gives the first";
    EXPECT_FALSE(std::signbit(apply<float>(op, V{0.0f}, V{-0.0f})[0])) << "a tie gives the first";
  }
}

TEST(Render, IntegerOperations) {
  using V = std::vector<std::int32_t>;
  constexpr std::int32_t low = INT32_MIN, high = INT32_MAX;
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Add, V{high, 1}, V{1, 2}), (V{low, 3}));
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Mul, V{65536, -3}, V{65536, 5}), (V{0, -15}));
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Div, V{7, -7, 5, low}, V{2, 2, 0, -1}), (V{3, -3, 0, low}));
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Rem, V{7, -7, 5, low}, V{2, 2, 0, -1}), (V{1, -1, 5, 0}));
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Shl, V{1, -1, 1}, V{31, 4, 33}), (V{low, -16, 2}));
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Shr, V{-16, 16}, V{2, 34}), (V{-4, 4}));
  EXPECT_EQ(apply<std::uint32_t>(ScalarOp::Shr, std::vector<std::uint32_t>{0x80000000u}, {31u}),
            (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::And, V{12}, V{10}), V{8});
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Or, V{12}, V{10}), V{14});
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Xor, V{12}, V{10}), V{6});
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Not, V{0}), V{-1});
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Abs, V{-5, low}), (V{5, low}));
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Min, V{-5, 3}, V{2, 1}), (V{-5, 1}));
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Sub, V{low, 1}, V{1, 2}), (V{high, -1}));
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Neg, V{low, 7}), (V{low, -7}));
  using W = std::vector<std::int64_t>;
  constexpr std::int64_t lowest = INT64_MIN, highest = INT64_MAX;
  EXPECT_EQ(apply<std::int64_t>(ScalarOp::Mul, W{1LL << 40, 1LL << 62}, {3, 6}), (W{3LL << 40, lowest}));
  EXPECT_EQ(apply<std::int64_t>(ScalarOp::Add, W{highest}, {1}), W{lowest});
  EXPECT_EQ(apply<std::int64_t>(ScalarOp::Sub, W{lowest}, {1}), W{highest});
  EXPECT_EQ(apply<std::int64_t>(ScalarOp::Abs, W{lowest, -3}), (W{lowest, 3}));
  EXPECT_EQ(apply<std::int64_t>(ScalarOp::Div, W{lowest}, {-1}), W{lowest});
  EXPECT_EQ(apply<std::uint32_t>(ScalarOp::Abs, std::vector<std::uint32_t>{UINT32_MAX}), std::vector{UINT32_MAX});
}

TEST(Render, ComparisonsAndBools) {
  using V = std::vector<float>;
  using B = std::vector<std::uint8_t>;
  const V a = {1, 2, 3, nan_value}, b = {2, 2, 2, 2};
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Eq, a, b), (B{0, 1, 0, 0}));
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Ne, a, b), (B{1, 0, 1, 1}));
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Lt, a, b), (B{1, 0, 0, 0}));
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Le, a, b), (B{1, 1, 0, 0}));
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Gt, a, b), (B{0, 0, 1, 0}));
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Ge, a, b), (B{0, 1, 1, 0}));
  const B p = {0, 0, 1, 1}, q = {0, 1, 0, 1};
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::And, p, q), (B{0, 0, 0, 1}));
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Or, p, q), (B{0, 1, 1, 1}));
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Xor, p, q), (B{0, 1, 1, 0}));
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Not, p), (B{1, 1, 0, 0}));
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Select, p, q, B{1, 1, 0, 0}), (B{1, 1, 0, 1}));
}

TEST(Render, Casts) {
  using V = std::vector<float>;
  const V x = {-1.9f, 2.9f, 3e9f, -3e9f, nan_value, inf, -inf, 0};
  EXPECT_EQ(apply<std::int32_t>(ScalarOp::Cast, x),
            (std::vector<std::int32_t>{-1, 2, INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MIN, 0}));
  EXPECT_EQ(apply<std::uint32_t>(ScalarOp::Cast, x),
            (std::vector<std::uint32_t>{0, 2, 3000000000u, 0, 0, UINT32_MAX, 0, 0}));
  EXPECT_EQ(apply<std::int64_t>(ScalarOp::Cast, x),
            (std::vector<std::int64_t>{-1, 2, 3000000000, -3000000000, 0, INT64_MAX, INT64_MIN, 0}));
  EXPECT_EQ(apply<std::uint8_t>(ScalarOp::Cast, x), (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(apply<float>(ScalarOp::Cast, std::vector<double>{0.1}), V{0.1f});
  EXPECT_EQ(apply<double>(ScalarOp::Cast, std::vector<std::uint32_t>{UINT32_MAX}), std::vector<double>{4294967295.0});
  EXPECT_EQ(apply<float>(ScalarOp::Cast, std::vector<std::uint8_t>{0, 1}), (V{0, 1}));
  EXPECT_EQ(apply<std::uint32_t>(ScalarOp::Bitcast, V{1}), std::vector<std::uint32_t>{0x3f800000u});
  EXPECT_EQ(apply<double>(ScalarOp::Bitcast, std::vector<std::int64_t>{0x3ff0000000000000}), std::vector<double>{1});
}

// Compilers would make 0 of -0 or the other way round: trunc(x) for a float of an integer, one instruction
// for -(a * b + c).
TEST(Render, SignsOfZeros) {
  constexpr std::int64_t n = 37;
  for (const DType dtype : {DType::F32, DType::F64}) {
    ProgramBuilder builder(host_target());
    const Var i = builder.var("i");
    const int a = builder.argument(dtype, n), whole = builder.result(dtype, n), negated = builder.result(dtype, n);
    MapBuilder map({{i, fixed(n)}}, 1, 0);
    const int x = map.load(dtype, at(a, Affine::of(i)));
    const int integer = map.op(ScalarOp::Cast, DType::I32, x);
    map.store(dtype, at(whole, Affine::of(i)), map.op(ScalarOp::Cast, dtype, integer));
    const int cancelled =
        map.op(ScalarOp::Fma, dtype, x, map.op(ScalarOp::Neg, dtype, x), map.op(ScalarOp::Mul, dtype, x, x));
    map.store(dtype, at(negated, Affine::of(i)),
              map.op(ScalarOp::Neg, dtype, map.op(ScalarOp::Copy, dtype, cancelled)));
    const int sign = builder.result(dtype, n);
    map.store(dtype, at(sign, Affine::of(i)), map.op(ScalarOp::Sign, dtype, map.op(ScalarOp::Ceil, dtype, x)));
    builder.add(Single{{{map.build()}}});
    const std::vector<Array> results = run_c(builder.build(), {Array::full(dtype, {n}, -0.5)});
    for (std::int64_t k = 0; k < n; ++k) {
      EXPECT_FALSE(std::signbit(results[0].at(k))) << name_of(dtype) << ", element " << k;
      EXPECT_TRUE(std::signbit(results[1].at(k))) << name_of(dtype) << ", element " << k;
      EXPECT_TRUE(std::signbit(results[2].at(k))) << name_of(dtype) << ", element " << k;
    }
  }
}

// y[i] = table[index[i]] where mask[i], else 0; then scattered under the mask.
TEST(Render, IndirectAndPredicatedAccess) {
  ProgramBuilder builder(host_target());
  constexpr std::int64_t n = 21;
  const int table = builder.constant(array(ramp(40))), index = builder.argument(DType::I32, n),
            mask = builder.argument(DType::Bool, n);
  const int gathered = builder.result(DType::F32, n), scattered = builder.result(DType::F32, 2 * n);
  const Var i = builder.var("i");
  MapBuilder map({{i, fixed(n)}}, 1, 0);
  const int at_index = map.load(DType::I32, at(index, Affine::of(i))),
            on = map.load(DType::Bool, at(mask, Affine::of(i)));
  const int value = map.load(DType::F32, at(table, 1, {{at_index, 2}}), on);
  map.store(DType::F32, at(gathered, Affine::of(i)), value);
  const int position = map.index(DType::I64, Affine::of(i, 2) + 1);
  map.store(DType::F32, at(scattered, {}, {{position, 1}}), value, on);
  builder.add(Single{{{map.build()}}});
  std::vector<std::int32_t> indices;
  std::vector<std::uint8_t> on_values;
  for (std::int32_t k = 0; k < n; ++k) indices.push_back(k * 5 % 19), on_values.push_back(k % 3 != 0);
  const auto results = run_c(builder.build(), {array(indices), array(on_values)});
  const std::vector<float> t = ramp(40);
  for (std::size_t k = 0; k < n; ++k) {
    const float want = on_values[k] ? t[static_cast<std::size_t>(1 + 2 * indices[k])] : 0;
    EXPECT_EQ(values<float>(results[0])[k], want) << k;
    EXPECT_EQ(values<float>(results[1])[2 * k + 1], on_values[k] ? want : 0) << k;
  }
}

// y[14 u + v] = x[7 u + v - 12] where that is an element of x, else a number: rows that a C compiler likes to unroll.
// gcc 12 vectorised a gather at places that say whether a condition holds by the mask of the comparison.
TEST(Render, ConditionsArePlaces) {
  const auto look_up = [](std::span<const Value> in) {
    const Value below = less(in[0], 0.0), place = cast(below, DType::I32);
    return std::vector{sum(gather(in[0], cast(in[1], DType::I32), 0)), sum(gather(in[0], place, 0)),
                       sum(gather(in[0], 1.0 - select(below, like(place, 1), like(place, 0)), 0))};
  };
  std::vector<float> x(33);
  std::vector<std::uint8_t> is_set(33);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::sin(static_cast<float>(i + 1));
    is_set[i] = i * 7 % 3 == 1;
  }
  const std::vector<Array> inputs = {Array::from(x, {33}), Array::from(is_set, {33})};
  const std::vector<Array> wanted = jit(look_up, {.backend = "interp"})(inputs);
  for (const std::string& target : hotloop::kernel::runnable_targets()) {
    const std::vector<Array> got = jit(look_up, {.backend = "c", .target = target})(inputs);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i].at(0), wanted[i].at(0), 1e-4) << target << i;
  }
}

TEST(Render, LoadsOfAnUnrolledLoopKeepTheirConditions) {
  ProgramBuilder builder(host_target());
  constexpr std::int64_t n = 7;
  const int x = builder.argument(DType::F64, n), y = builder.result(DType::F64, 2 * n * n);
  const Var u = builder.var("u"), v = builder.var("v");
  MapBuilder map({{u, fixed(n)}, {v, fixed(n)}}, 2, 1);
  const Affine from = Affine::of(u, n) + Affine::of(v) + -12;
  const int position = map.index(DType::I64, from);
  const int above = map.op(ScalarOp::Ge, DType::Bool, position, map.constant<std::int64_t>(0)),
            below = map.op(ScalarOp::Lt, DType::Bool, position, map.constant<std::int64_t>(n));
  const int inside = map.op(ScalarOp::And, DType::Bool, above, below);
  const int value = map.load(DType::F64, at(x, from), inside);
  const int chosen = map.op(ScalarOp::Select, DType::F64, inside, value, map.constant<double>(0.25));
  map.store(DType::F64, at(y, Affine::of(u, 2 * n) + Affine::of(v)), chosen);
  builder.add(Single{{{map.build()}}});
  const std::vector<double> elements = {1, 2, 3, 4, 5, 6, 7};
  const std::vector<double> got = values<double>(run_c(builder.build(), {array(elements)})[0]);
  for (std::int64_t k = 0; k < n * n; ++k) {
    const std::int64_t i = k - 12;
    const double want = i >= 0 && i < n ? elements[static_cast<std::size_t>(i)] : 0.25;
    EXPECT_EQ(got[static_cast<std::size_t>(k / n * 2 * n + k % n)], want) << k;
  }
}

// The documented order of a sum over the vector dim, with a tail, and of a sequential one.
TEST(Render, ReductionOrder) {
  for (const std::int64_t n : {1, 5, 16, 37}) {
    for (const bool vector : {true, false}) {
      ProgramBuilder builder(host_target());
      const int x = builder.argument(DType::F32, 3 * n), y = builder.result(DType::F32, 6);
      const Var i = builder.var("i"), j = builder.var("j");
      MapBuilder map({{i, fixed(3)}, {j, fixed(n)}}, 1, vector ? 1 : -1);
      const int square = map.op(ScalarOp::Mul, DType::F32,
                                map.load(DType::F32, at(x, Affine::of(i, n) + Affine::of(j))), map.constant(1.1f));
      const int sum = map.reduced(ScalarOp::Add, DType::F32, square);
      const int fused = map.reduced(ScalarOp::Fma, DType::F32, square, square);
      map.store(DType::F32, at(y, Affine::of(i)), map.op(ScalarOp::Neg, DType::F32, sum));
      map.store(DType::F32, at(y, Affine::of(i) + 3), fused);
      builder.add(Single{{{map.build()}}});
      const std::vector<float> data = ramp(3 * n);
      const std::vector<float> got = values<float>(run_c(builder.build(), {array(data)})[0]);
      for (std::int64_t row = 0; row < 3; ++row) {
        float lanes[16] = {}, products[16] = {};
        for (std::int64_t k = 0; k < n; ++k) {
          const float value = data[static_cast<std::size_t>(row * n + k)] * 1.1f;
          const std::int64_t l = vector ? k % 16 : 0;
          lanes[l] += value;
          products[l] = host_target().has_fma ? std::fma(value, value, products[l]) : value * value + products[l];
        }
        for (int h = 8; h > 0; h /= 2) {
          for (int l = 0; l < h; ++l) lanes[l] += lanes[l + h], products[l] += products[l + h];
        }
        EXPECT_EQ(got[static_cast<std::size_t>(row + 3)], products[0]) << "n " << n << " vector " << vector;
        EXPECT_EQ(got[static_cast<std::size_t>(row)], -lanes[0]) << "n " << n << " vector " << vector;
      }
    }
  }
}

TEST(Render, EveryReduction) {
  constexpr std::int64_t n = 19;
  std::vector<std::int32_t> data;
  for (std::int32_t k = 0; k < n; ++k) data.push_back(k * 11 % 17 - 8);
  ProgramBuilder builder(host_target());
  const int x = builder.argument(DType::I32, n), y = builder.result(DType::I32, 6);
  const Var j = builder.var("j");
  MapBuilder map({{j, fixed(n)}}, 0, 0);
  const int value = map.load(DType::I32, at(x, Affine::of(j)));
  std::vector<int> sums;
  const ScalarOp ops[] = {ScalarOp::Add, ScalarOp::Mul, ScalarOp::Max, ScalarOp::Min, ScalarOp::And, ScalarOp::Or};
  for (const ScalarOp op : ops) sums.push_back(map.reduced(op, DType::I32, value));
  for (int k = 0; k < 6; ++k) map.store(DType::I32, at(y, k), sums[static_cast<std::size_t>(k)]);
  builder.add(Single{{{map.build()}}});
  std::uint32_t product = 1;
  std::int32_t total = 0, high = INT32_MIN, low = INT32_MAX, all = -1, any = 0;
  for (const std::int32_t v : data) {
    total += v, product *= static_cast<std::uint32_t>(v), high = std::max(high, v), low = std::min(low, v), all &= v,
                                                          any |= v;
  }
  EXPECT_EQ(values<std::int32_t>(run_c(builder.build(), {array(data)})[0]),
            (std::vector<std::int32_t>{total, static_cast<std::int32_t>(product), high, low, all, any}));
}

// c = init + a b over two segments, one plain with 3 dims of k, one packed; every target's panels and tails.
TEST(Render, DotAndPack) {
  for (const std::string& target : hotloop::kernel::runnable_targets()) {
    for (const auto& [n, panel] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{3, 16}, {16, 64}, {70, 64}, {70, 16}, {70, 32}}) {
      constexpr std::int64_t m = 5, k0 = 2, k1 = 3, k2 = 2, kp = 7;
      ProgramBuilder builder(target_named(target));
      const std::int64_t padded = (n + 15) / 16 * 16;
      const int a = builder.argument(DType::F32, m * 12), b = builder.argument(DType::F32, 12 * n);
      const int ap = builder.argument(DType::F32, m * kp), bp = builder.argument(DType::F32, n * kp),
                init = builder.argument(DType::F32, n);
      const int panels = builder.worker(DType::F32, padded * kp), c = builder.result(DType::F32, m * n);
      Pack pack;
      pack.source = at(bp), pack.target = panels, pack.panel = panel;
      pack.k = kp, pack.k_stride = 1, pack.n = n, pack.n_stride = kp;  // transposed
      Dot dot;
      dot.name = "test", dot.m = fixed(m), dot.n = fixed(n);
      dot.segments.push_back({at(a), at(b), 12, 1, {{fixed(k0), 6, 6 * n}, {fixed(k1), 2, 2 * n}, {fixed(k2), 1, n}}});
      dot.segments.push_back({at(ap), at(panels), kp, 0, {{fixed(kp), 1, 0}}, panel});
      dot.init = at(init), dot.init_n = 1;
      dot.c = at(c), dot.c_m = n;
      builder.add(Single{{{pack}, {dot}}});
      const std::vector<float> av = ramp(m * 12), bv = ramp(12 * n, 2), apv = ramp(m * kp, 1), bpv = ramp(n * kp),
                               iv = ramp(n);
      const Program program = builder.build();
      const std::vector<float> got =
          values<float>(run_c(program, {array(av), array(bv), array(apv), array(bpv), array(iv)})[0]);
      const auto step = [&](float x, float y, float sum) {
        return program.target.has_fma ? std::fma(x, y, sum) : sum + x * y;
      };
      for (std::int64_t r = 0; r < m; ++r) {
        for (std::int64_t col = 0; col < n; ++col) {
          const auto e = [](const std::vector<float>& v, std::int64_t i) { return v[static_cast<std::size_t>(i)]; };
          float sum = e(iv, col);
          for (std::int64_t k = 0; k < 12; ++k) sum = step(e(av, r * 12 + k), e(bv, k * n + col), sum);
          for (std::int64_t k = 0; k < kp; ++k) sum = step(e(apv, r * kp + k), e(bpv, col * kp + k), sum);
          EXPECT_EQ(e(got, r * n + col), sum) << target << " n " << n << " at " << r << ", " << col;
        }
      }
    }
  }
}

// Doubles a state until it passes a bound, at most 10 times; counts; then reads the history backwards.
TEST(Render, LoopsWithStopReverseAndLet) {
  ProgramBuilder builder(host_target());
  const int bound = builder.argument(DType::F32, 1), limit = builder.argument(DType::I32, 1);
  const int state = builder.worker(DType::F32, 1), done = builder.worker(DType::Bool, 1),
            count = builder.worker(DType::I32, 1);
  const int history = builder.result(DType::F32, 10), backwards = builder.result(DType::F32, 10),
            counted = builder.result(DType::I32, 1), left = builder.result(DType::I64, 1);
  const Var t = builder.var("t"), s = builder.var("s"), n = builder.var("n"), step = builder.var("step"),
            fewer = builder.var("fewer");
  const auto scalar = [](const std::function<void(MapBuilder&)>& body) {
    MapBuilder map({}, 0, -1);
    body(map);
    return Stmt{map.build()};
  };
  Block body;
  body.push_back(scalar([&](MapBuilder& m) {
    m.store(DType::F32, at(state), m.constant(1.0f));
    m.store(DType::I32, at(count), m.constant(std::int32_t{0}));
  }));
  For loop;
  loop.counter = t, loop.trip = fixed(10);
  loop.test.push_back(scalar([&](MapBuilder& m) {
    m.store(DType::Bool, at(done),
            m.op(ScalarOp::Gt, DType::Bool, m.load(DType::F32, at(state)), m.load(DType::F32, at(bound))));
  }));
  loop.stop = at(done);
  loop.body.push_back(scalar([&](MapBuilder& m) {
    const int x = m.load(DType::F32, at(state));
    m.store(DType::F32, at(history, Affine::of(t)), x);
    m.store(DType::F32, at(state), m.op(ScalarOp::Add, DType::F32, x, x));
    m.store(DType::I32, at(count),
            m.op(ScalarOp::Add, DType::I32, m.load(DType::I32, at(count)), m.constant(std::int32_t{1})));
  }));
  body.push_back({loop});
  body.push_back(scalar([&](MapBuilder& m) { m.store(DType::I32, at(counted), m.load(DType::I32, at(count))); }));
  body.push_back({Let{n, at(limit), DType::I32, 0, 10}});
  body.push_back({Let{fewer, {}, DType::I64, 1, 4, Affine::of(n, -1) + 7}});
  body.push_back(scalar([&](MapBuilder& m) { m.store(DType::I64, at(left), m.index(DType::I64, Affine::of(fewer))); }));
  body.push_back(scalar([&](MapBuilder& m) { m.store(DType::I32, at(count), m.constant(std::int32_t{0})); }));
  For reverse;
  reverse.counter = s, reverse.trip = {10, n}, reverse.reverse = true;
  reverse.body.push_back({Let{step, at(count), DType::I32, 0, 9}});
  reverse.body.push_back(scalar([&](MapBuilder& m) {
    m.store(DType::F32, at(backwards, Affine::of(step)), m.load(DType::F32, at(history, Affine::of(s))));
    m.store(DType::I32, at(count),
            m.op(ScalarOp::Add, DType::I32, m.load(DType::I32, at(count)), m.constant(std::int32_t{1})));
  }));
  body.push_back({reverse});
  builder.add(Single{body});
  auto results = run_c(builder.build(), {array<float>({20}), array<std::int32_t>({3})});
  EXPECT_EQ(values<float>(results[0]), (std::vector<float>{1, 2, 4, 8, 16, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values<float>(results[1]), (std::vector<float>{4, 2, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values<std::int32_t>(results[2]), std::vector<std::int32_t>{5});
  EXPECT_EQ(values<std::int64_t>(results[3]), std::vector<std::int64_t>{4}) << "7 - 3";
  results = run_c(builder.build(), {array<float>({1e9f}), array<std::int32_t>({99})});
  EXPECT_EQ(values<float>(results[1])[0], 512) << "the limit is clamped to 10";
  EXPECT_EQ(values<std::int32_t>(results[2]), std::vector<std::int32_t>{10});
  EXPECT_EQ(values<std::int64_t>(results[3]), std::vector<std::int64_t>{1}) << "7 - 10 is clamped";
}

// Row sums by tiles, block sums of them, a barrier, and a split Map: the same for any number of workers and rows.
TEST(Render, GridSplitAndBarrier) {
  constexpr std::int64_t max_rows = 50, columns = 7, blocks = 3;
  ProgramBuilder builder(host_target(), max_rows);
  const int x = builder.argument(DType::F64, max_rows * columns), y = builder.result(DType::F64, max_rows),
            total = builder.result(DType::F64, 1);
  const int partial = builder.shared(DType::F64, blocks), sums = builder.shared(DType::F64, max_rows);
  const Var block = builder.var("block"), row0 = builder.var("row0"), rows = builder.var("rows"), r = builder.var("r"),
            c = builder.var("c"), all = builder.var("all"), b = builder.var("b");
  Grid grid;
  grid.block = block, grid.row0 = row0, grid.rows = rows;
  grid.total = {max_rows, rows_var}, grid.tile_rows = 4, grid.num_blocks = blocks, grid.tiles_per_block = 5;
  MapBuilder zero({}, 0, -1);
  zero.store(DType::F64, at(partial, Affine::of(block)), zero.constant(0.0));
  grid.prologue.push_back({zero.build()});
  MapBuilder row_sum({{r, {4, rows}}, {c, fixed(columns)}}, 1, -1);
  const Affine row = Affine::of(row0) + Affine::of(r);
  const int sum =
      row_sum.reduced(ScalarOp::Add, DType::F64, row_sum.load(DType::F64, at(x, row * columns + Affine::of(c))));
  row_sum.store(DType::F64, at(sums, row), sum);
  grid.body.push_back({row_sum.build()});
  MapBuilder block_sum({{r, {4, rows}}}, 0, -1);
  const int more = block_sum.reduced(ScalarOp::Add, DType::F64, block_sum.load(DType::F64, at(sums, row)));
  const int before = block_sum.load(DType::F64, at(partial, Affine::of(block)));
  block_sum.store(DType::F64, at(partial, Affine::of(block)), block_sum.op(ScalarOp::Add, DType::F64, before, more));
  grid.body.push_back({block_sum.build()});
  builder.add(grid);
  builder.add(Barrier{});
  MapBuilder doubled({{all, {max_rows, rows_var}}}, 1, 0);
  const int v = doubled.load(DType::F64, at(sums, Affine::of(all)));
  doubled.store(DType::F64, at(y, Affine::of(all)), doubled.op(ScalarOp::Add, DType::F64, v, v));
  builder.add(doubled.build(true));
  MapBuilder finish({{b, fixed(blocks)}}, 0, -1);
  finish.store(DType::F64, at(total),
               finish.reduced(ScalarOp::Add, DType::F64, finish.load(DType::F64, at(partial, Affine::of(b)))));
  builder.add(Single{{{finish.build()}}});
  const Program program = builder.build();

  std::vector<double> data;
  for (int k = 0; k < max_rows * columns; ++k) data.push_back(0.1 * (k % 31) - 1);
  for (const std::int64_t num_rows : {1, 4, 21, 50}) {
    for (const int workers : {1, 2, 5}) {
      const auto results = run_c(program, {array(data)}, num_rows, workers);
      double want_total = 0;
      for (std::int64_t i = 0; i < max_rows; ++i) {
        double want = 0;
        for (std::int64_t k = 0; k < columns; ++k) want += data[static_cast<std::size_t>(i * columns + k)];
        if (i < num_rows) want_total += want;
        EXPECT_EQ(values<double>(results[0])[static_cast<std::size_t>(i)], i < num_rows ? want + want : 0)
            << num_rows << " rows";
      }
      EXPECT_NEAR(values<double>(results[1])[0], want_total, 1e-12);
      EXPECT_EQ(values<double>(results[1]), values<double>(run_c(program, {array(data)}, num_rows, 1)[1]))
          << workers << " workers";
    }
  }
}

TEST(Render, StopsWhenCancelled) {
  ProgramBuilder builder(host_target());
  const int y = builder.result(DType::F32, 1);
  const Var t = builder.var("t");
  MapBuilder map({}, 0, -1);
  map.store(DType::F32, at(y), map.constant(1.0f));
  For loop;
  loop.counter = t, loop.trip = fixed(5);
  loop.body.push_back({Single{{{map.build()}}}});
  builder.add(loop);
  const Program program = builder.build();
  const auto kernel = compile_c(program, {.keep_source = true, .cache_dir = ""});
  EXPECT_NE(kernel->source.find("hotloop_kernel"), std::string::npos);
  EXPECT_GT(kernel->code_bytes, 0u);
  std::vector<Array> results{Array::zeros(DType::F32, {1})};
  const std::int32_t cancel = 1;
  run_kernel(program, kernel->function(), {}, results, 1, 1, &cancel);
  EXPECT_EQ(results[0].at(0), 0);
}

TEST(Render, LongBlocksAreCutIntoFunctions) {
  const Program program = many_statements(host_target());
  const auto kernel = compile_c(program, {.keep_source = true, .cache_dir = ""});
  std::istringstream source(kernel->source);
  int num_functions = 0;
  std::size_t length = 0, longest = 0;
  for (std::string line; std::getline(source, line); ++length) {
    if (!line.ends_with(") {") || line.starts_with(" ")) continue;
    num_functions += line.find("hotloop_kernel_part") != std::string::npos;
    longest = std::max(longest, length);
    length = 0;
  }
  EXPECT_GE(num_functions, 8);
  EXPECT_LT(std::max(longest, length), 1000u);  // lines; in one function they are some six thousand
  const std::vector<Array> arguments = arguments_of_many_statements();
  std::vector<Array> results{Array::zeros(DType::F32, program.results[0].shape)},
      want{Array::zeros(DType::F32, program.results[0].shape)};
  run_kernel(program, kernel->function(), arguments, results);
  Reference(program, arguments, want, 1).run();
  EXPECT_EQ(values<float>(results[0]), values<float>(want[0]));
}

TEST(Render, CancelLeavesALoopInAPart) {
  const Program program = long_loop_among_statements(host_target());
  const auto kernel = compile_c(program, {.keep_source = true, .cache_dir = ""});
  EXPECT_NE(kernel->source.find("hotloop_kernel_part0"), std::string::npos);
  std::vector<Array> results{Array::zeros(DType::I64, Shape{1}), Array::zeros(DType::I64, Shape{1})};
  std::int32_t cancel = 0;
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic_ref(cancel).store(1);
  });
  run_kernel(program, kernel->function(), {}, results, 1, 1, &cancel);
  canceller.join();
  EXPECT_GE(results[0].at(0), 149 * 75);
  EXPECT_EQ(results[1].at(0), 0);
}

}  // namespace
}  // namespace hotloop::kernel
