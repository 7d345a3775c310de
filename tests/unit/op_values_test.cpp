// Values of operations where their definition has a choice: edges, ties, NaN, wrapping, broadcasting.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "arrays.h"
#include "backends.h"
#include "compiled.h"
#include "core/philox.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "op_checks.h"

namespace hotloop {
namespace {

using In = std::span<const Value>;
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Array run(const std::function<Value(In)>& fn, const std::vector<Array>& inputs) {
  std::vector<ValueType> types;
  for (const Array& a : inputs) types.push_back(a.type());
  const auto graph = trace([&](In in) { return std::vector<Value>{fn(in)}; }, types);
  ir::verify(*graph);
  return ir::evaluate(*graph, inputs)[0];
}

Array f64(const std::vector<double>& values) { return Array::from(values, {static_cast<std::int64_t>(values.size())}); }
Array i32(const std::vector<std::int32_t>& values) {
  return Array::from(values, {static_cast<std::int64_t>(values.size())});
}
Array u32(const std::vector<std::uint32_t>& values) {
  return Array::from(values, {static_cast<std::int64_t>(values.size())});
}

void expect_values(const Array& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), static_cast<std::int64_t>(wanted.size()));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double g = got.at(static_cast<std::int64_t>(i));
    if (std::isnan(wanted[i]))
      EXPECT_TRUE(std::isnan(g)) << "element " << i << ": " << g;
    else
      EXPECT_EQ(g, wanted[i]) << "element " << i;
  }
}

TEST(OpValues, IntegersWrapAndDivideByZero) {
  constexpr std::int32_t lowest = std::numeric_limits<std::int32_t>::min(),
                         highest = std::numeric_limits<std::int32_t>::max();
  const auto a = i32({highest, lowest, 7, -7, lowest}), b = i32({1, 1, 0, 2, -1});
  expect_values(run([](In in) { return in[0] + in[1]; }, {a, b}), {lowest, lowest + 1.0, 7, -5, highest});
  expect_values(run([](In in) { return in[0] * in[1]; }, {a, b}), {highest, lowest, 0, -14, lowest});
  expect_values(run([](In in) { return in[0] / in[1]; }, {a, b}), {highest, lowest, 0, -3, lowest});
  expect_values(run([](In in) { return rem(in[0], in[1]); }, {a, b}), {0, 0, 7, -1, 0});
  expect_values(run([](In in) { return neg(in[0]); }, {u32({1, 0})}), {4294967295.0, 0});
  expect_values(run([](In in) { return abs(in[0]); }, {a}), {highest, lowest, 7, 7, lowest});
}

TEST(OpValues, ShiftsTakeCountsModuloTheWidth) {
  const auto counts = i32({0, 4, 31, 32, 33, -1});
  expect_values(run([](In in) { return shift_left(in[0], in[1]); }, {i32({3, 3, 3, 3, 3, 3}), counts}),
                {3, 48, -2147483648.0, 3, 6, -2147483648.0});
  expect_values(run([](In in) { return shift_right(in[0], in[1]); }, {i32({-16, -16, -16, -16, -16, -16}), counts}),
                {-16, -1, -1, -16, -8, -1});
  expect_values(run([](In in) { return shift_right(in[0], in[0]); }, {u32({4294967295u})}), {1});
}

TEST(OpValues, CastSaturates) {
  expect_values(run([](In in) { return cast(in[0], DType::I32); }, {f64({1.9, -1.9, 1e20, -1e20, inf, nan})}),
                {1, -1, 2147483647.0, -2147483648.0, 2147483647.0, 0});
  expect_values(run([](In in) { return cast(in[0], DType::U32); }, {f64({-1, 4294967295.0, 5e9})}),
                {0, 4294967295.0, 4294967295.0});
  expect_values(run([](In in) { return cast(in[0], DType::Bool); }, {f64({0, -0.0, 0.5, nan})}), {0, 0, 1, 1});
  expect_values(run([](In in) { return cast(in[0], DType::U32); }, {i32({-1})}), {4294967295.0});
}

// What Array::cast, the interpreter and the backends make of it must be one thing.
TEST(OpValues, CastsAreOneFunctionForAllPairsOfDtypes) {
  const std::vector<double> numbers = {nan,           inf,          -inf,          1e20,          -1e20,
                                       0.0,           -0.0,         0.5,           -0.5,          1.9,
                                       -1.9,          2147483647.0, 2147483648.0,  -2147483648.0, -2147483649.0,
                                       4294967295.0,  4294967296.0, 4294967294.5,  9.3e18,        -9.3e18,
                                       0x1.fffffep30, 0x1p31,       0x1.fffffep31, 0x1p63,        -0x1p63};
  const std::vector<std::int64_t> integers = {0,
                                              1,
                                              -1,
                                              2147483647,
                                              2147483648,
                                              -2147483649,
                                              4294967295,
                                              4294967297,
                                              9007199254740993,
                                              std::numeric_limits<std::int64_t>::min(),
                                              std::numeric_limits<std::int64_t>::max()};
  const std::vector<Array> sources = {
      f64(numbers),
      Array::from(std::vector<float>(numbers.begin(), numbers.end()), {static_cast<std::int64_t>(numbers.size())}),
      Array::from(integers, {static_cast<std::int64_t>(integers.size())}),
      i32({0, 1, -1, 2147483647, std::numeric_limits<std::int32_t>::min(), 16777217}),
      u32({0, 1, 2147483648u, 4294967295u, 16777217}),
      Array::from<std::uint8_t>({0, 1, 1}, {3})};
  for (const Array& x : sources)
    for (const DType to : {DType::Bool, DType::I32, DType::U32, DType::I64, DType::F32, DType::F64}) {
      const std::string what = std::string(name_of(x.dtype())) + " to " + std::string(name_of(to));
      const auto graph = trace([&](In in) { return std::vector<Value>{cast(in[0], to)}; }, {{x.type()}});
      const Array wanted = ir::evaluate(*graph, std::vector{x})[0];
      EXPECT_TRUE(testing::same_bits(x.cast(to), wanted)) << what << " by Array::cast";
      if (x.dtype() == DType::F64)
        for (std::int64_t i = 0; i < x.size(); ++i) {
          Array set(to, {1});
          set.set(0, x.at(i));
          EXPECT_TRUE(testing::same_bits(set, Array::from<double>({x.at(i)}, {1}).cast(to)))
              << what << " of " << x.at(i) << " by Array::set";
        }
      for (const testing::Compiled& c : testing::all_compiled())
        EXPECT_TRUE(testing::same_bits(compile(graph, c.options())(std::vector{x})[0], wanted))
            << what << " by " << testing::name_of_case(c);
    }
}

TEST(OpValues, NanInComparisonsAndExtremes) {
  const auto a = f64({nan, 1, nan, 2}), b = f64({1, nan, nan, 3});
  expect_values(run([](In in) { return maximum(in[0], in[1]); }, {a, b}), {nan, nan, nan, 3});
  expect_values(run([](In in) { return minimum(in[0], in[1]); }, {a, b}), {nan, nan, nan, 2});
  expect_values(run([](In in) { return equal(in[0], in[1]); }, {a, b}), {0, 0, 0, 0});
  expect_values(run([](In in) { return not_equal(in[0], in[1]); }, {a, b}), {1, 1, 1, 1});
  expect_values(run([](In in) { return less(in[0], in[1]); }, {a, b}), {0, 0, 0, 1});
  expect_values(run([](In in) { return sign(in[0]); }, {f64({nan, -3, 0, inf})}), {nan, -1, 0, 1});
  expect_values(run([](In in) { return clip(in[0], 0, 1); }, {f64({nan, -3, 0.5, inf})}), {nan, 0, 0.5, 1});
  expect_values(run([](In in) { return relu(in[0]); }, {f64({-inf, -3, 0.5, inf, nan})}), {0, 0, 0.5, inf, nan});
  expect_values(
      run([](In in) { return select(greater(in[0], like(in[0], 0)), in[0], in[1]); }, {f64({1, -1}), f64({nan, 5})}),
      {1, 5});
}

TEST(OpValues, Reductions) {
  const auto x = Array::from<double>({1, nan, 3, 4, 5, 5}, {2, 3});
  expect_values(run([](In in) { return reduce_max(in[0], {1}); }, {x}), {nan, 5});
  expect_values(run([](In in) { return reduce_min(in[0], {1}); }, {x}), {nan, 4});
  expect_values(run([](In in) { return argmax(in[0], 1); }, {x}), {1, 1});
  const auto none = Array::zeros(DType::F64, {0, 2});
  expect_values(run([](In in) { return reduce_sum(in[0], {0}); }, {none}), {0, 0});
  expect_values(run([](In in) { return reduce_prod(in[0], {0}); }, {none}), {1, 1});
  expect_values(run([](In in) { return reduce_max(in[0], {0}); }, {none}), {-inf, -inf});
  const auto flags = Array::from<std::uint8_t>({0, 1, 0, 0}, {2, 2});
  expect_values(run([](In in) { return reduce_max(in[0], {1}); }, {flags}), {1, 0});
  expect_values(run([](In in) { return reduce_min(in[0], {1}); }, {flags}), {0, 0});
  // Wide accumulation: in f32 alone, 2^24 + 1 would stay 2^24.
  const auto close = Array::from<float>({16777216.0f, 1.0f, 1.0f}, {3});
  expect_values(run([](In in) { return reduce_sum(in[0], {0}); }, {close}), {16777218.0});
}

TEST(OpValues, IndirectAccessAtTheEdges) {
  const auto x = f64({10, 11, 12}), at = i32({-5, 0, 2, 3, 99});
  expect_values(run([](In in) { return gather(in[0], in[1], 0); }, {x, at}), {10, 10, 12, 12, 12});
  expect_values(run([](In in) { return scatter_add(in[0], in[1], in[2], 0); }, {x, at, f64({1, 2, 3, 4, 5})}),
                {12, 11, 15});
  for (const auto& [start, wanted] :
       std::vector<std::pair<int, std::vector<double>>>{{-3, {10, 11}}, {1, {11, 12}}, {9, {11, 12}}}) {
    const Array s = Array::scalar<std::int32_t>(start);
    expect_values(run([](In in) { return dynamic_slice(in[0], in.subspan(1), {2}); }, {x, s}), wanted);
  }
  expect_values(run([](In in) { return dynamic_update(in[0], in[1], in.subspan(2)); },
                    {x, f64({1, 2}), Array::scalar<std::int32_t>(7)}),
                {10, 1, 2});
}

// Out of range by more than 32 bits, too: what is cut off an index must not name another element.
TEST(OpValues, IndicesOf64BitsAreLimitedAsTheyAre) {
  const auto at = Array::from<std::int64_t>(
      {4294967297, -4294967295, 2, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()},
      {5});
  const auto unsigned_at = u32({0, 4294967295u, 2147483648u, 1, 4294967294u});
  const auto x = f64({10, 11, 12});
  const auto read = [](In in) {
    return std::vector{gather(in[0], in[1], 0), gather(in[0], in[2], 0), scatter_add(in[0], in[1], in[3], 0),
                       scatter_add(in[0], in[2], in[3], 0)};
  };
  const std::vector<Array> inputs = {x, at, unsigned_at, f64({1, 2, 3, 4, 5})};
  const auto graph = trace(read, ir::types_of(inputs));
  for (const testing::Backend& backend : testing::all_backends()) {
    const auto got = backend.run(graph, inputs);
    SCOPED_TRACE(backend.name);
    expect_values(got[0], {12, 10, 12, 12, 10});
    expect_values(got[1], {10, 12, 12, 11, 12});
    expect_values(got[2], {10, 11, 15});
    expect_values(got[3], {11, 15, 12});
  }
}

// An axis that i32 does not count to the end of: memory that nobody touches but for the elements that are read.
TEST(OpValues, IndicesOf32BitsOnALongerAxis) {
  constexpr std::int64_t n = (std::int64_t{1} << 31) + 16;
  void* const memory = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const Array x = Array::wrap(DType::Bool, {n}, std::shared_ptr<void>(memory, [](void* p) { munmap(p, n); }));
  for (const std::int64_t i : {std::int64_t{0}, (std::int64_t{1} << 31) - 1, n - 1}) static_cast<char*>(memory)[i] = 1;
  const std::vector<Array> inputs = {x, i32({std::numeric_limits<std::int32_t>::max(), -5, 7}),
                                     u32({2147483647u, 2147483663u, 4294967295u}),
                                     Array::from<std::int64_t>({n - 1, n - 2, std::int64_t{1} << 40}, {3})};
  const auto graph = trace(
      [](In in) {
        return std::vector{gather(in[0], in[1], 0), gather(in[0], in[2], 0), gather(in[0], in[3], 0)};
      },
      ir::types_of(inputs));
  for (const testing::Backend& backend : testing::all_backends()) {
    const auto got = backend.run(graph, inputs);
    SCOPED_TRACE(backend.name);
    expect_values(got[0], {1, 1, 0});
    expect_values(got[1], {1, 1, 1});
    expect_values(got[2], {1, 0, 1});
  }
}

TEST(OpValues, RandomBitsAreThePublishedGenerator) {
  // Random123, kat_vectors: Philox2x32-10 of zero counter and key.
  const auto bits = run([](In in) { return random_bits(in[0], {2, 3}); }, {u32({0, 0})});
  expect_values(bits.reshaped({6}).cast(DType::U32),
                {0xff1dae59, 0x6cd10df2, bits.at(2), bits.at(3), bits.at(4), bits.at(5)});
  // A pure function of the flat index: the shape does not matter.
  const auto more = run([](In in) { return random_bits(in[0], {11}); }, {u32({0, 0})});
  for (int i = 0; i < 6; ++i) EXPECT_EQ(more.at(i), bits.at(i));
  // A word does not change where others are not asked for, and each key has words of its own.
  for (int i = 0; i < 11; ++i)
    EXPECT_EQ(random_word(static_cast<std::uint32_t>(i), 0, 0), static_cast<std::uint32_t>(more.at(i)));
  const Array keys = Array::from(std::vector<std::uint32_t>{0, 0, 7, 9, 9, 7}, {3, 2});
  const auto lanes = run([](In in) { return random_bits(in[0], {5}); }, {keys});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(lanes.at(i), more.at(i));
    EXPECT_EQ(lanes.at(5 + i), random_word(static_cast<std::uint32_t>(i), 7, 9));
    EXPECT_EQ(lanes.at(10 + i), random_word(static_cast<std::uint32_t>(i), 9, 7));
  }
}

// Kernels compute both words of a block where both are asked for side by side: which ones are must not be seen.
TEST(OpValues, RandomBitsByWhateverLanes) {
  using Program = std::function<Value(Value)>;
  const auto fits = [](Value bits) { return cast(bits, DType::F64) * 0x1p-32; };
  std::vector<std::pair<std::string, Program>> programs;
  for (const std::int64_t n : {1, 2, 3, 16, 33, 64, 100, 257})
    programs.emplace_back("of " + std::to_string(n), [n](Value key) { return random_bits(key, {n}); });
  for (const std::int64_t columns : {1, 2, 3, 6, 16, 17, 40}) {
    const std::string width = std::to_string(columns);
    const auto words = [columns](Value key) { return random_bits(key, {37, columns}); };
    programs.emplace_back("rows of " + width, words);
    programs.emplace_back("rows as f64 of " + width, [=](Value key) { return fits(words(key)); });
    programs.emplace_back("columns of " + width, [=](Value key) { return transpose(words(key), {1, 0}); });
    programs.emplace_back("sums of " + width, [=](Value key) { return reduce_sum(fits(words(key)), {1}); });
    programs.emplace_back("sums over rows of " + width, [=](Value key) { return reduce_sum(fits(words(key)), {0}); });
    programs.emplace_back("each second of " + width, [=](Value key) {
      return slice(words(key), {1, 0}, {37, columns}, {2, 1});
    });
  }
  const auto pairs = [](Value key) { return random_bits(key, {53, 2}); };
  programs.emplace_back(
      "pairs", [=](Value key) { return take(fits(pairs(key)), 1, 0) + 0x1p-32 * take(fits(pairs(key)), 1, 1); });
  programs.emplace_back("from an odd place", [](Value key) { return narrow(random_bits(key, {70}), 0, 3, 60); });
  programs.emplace_back("reversed", [](Value key) { return reverse(random_bits(key, {64}), {0}); });
  programs.emplace_back("keys of a batch", [](Value key) { return random_bits(random_bits(key, {21, 2}), {6}); });
  programs.emplace_back("keys of batches", [](Value key) { return random_bits(random_bits(key, {3, 5, 2}), {}); });
  const std::vector<Array> inputs = {u32({3, 0x80000001})};
  const auto backends = testing::all_backends();
  for (const auto& [name, program] : programs) {
    const auto graph = trace([&](In in) { return std::vector<Value>{program(in[0])}; }, ir::types_of(inputs));
    const Array want = ir::evaluate(*graph, inputs)[0];
    for (const testing::Backend& backend : backends) {
      const Array got = backend.run(graph, inputs)[0];
      ASSERT_EQ(got.type(), want.type());
      for (std::int64_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got.at(i), want.at(i), is_float(got.dtype()) ? 1e-12 : 0)
            << name << ", " << backend.name << ", " << i;
    }
  }
}

// Tangents at points that the property tests keep clear of.
TEST(OpValues, DerivativesAtKinks) {
  const auto tangent = [](const std::string& name, const std::vector<Array>& operands,
                          const std::vector<Array>& tangents, const Attrs& attrs = {}) {
    return ir::tangents_by_rule(ir::op(name), {operands, attrs, {}}, tangents)[0];
  };
  const Array one = f64({1}), zero = f64({0});
  expect_values(tangent("abs", {zero}, {one}), {0});
  expect_values(tangent("max", {f64({3}), f64({3})}, {f64({10}), f64({20})}), {15});
  expect_values(tangent("max", {f64({3}), f64({3})}, {f64({10}), Array()}), {5});
  expect_values(tangent("min", {f64({3}), f64({4})}, {f64({10}), f64({20})}), {10});
  expect_values(tangent("reduce_max", {f64({3, 1, 3})}, {f64({10, 20, 30})}, {{"axes", std::vector<std::int64_t>{0}}}),
                {20});
  expect_values(tangent("reduce_prod", {f64({0, 2, 3})}, {f64({1, 1, 1})}, {{"axes", std::vector<std::int64_t>{0}}}),
                {6});
  expect_values(tangent("pow", {f64({0, 0, 0}), f64({0, 1, 2})}, {f64({1, 1, 1}), Array()}), {0, 1, 0});
  expect_values(tangent("pow", {f64({0, 1}), f64({2, 2})}, {Array(), f64({1, 1})}), {0, 0});
  expect_values(tangent("sqrt", {zero}, {one}), {inf});
  expect_values(tangent("stop_gradient", {one}, {one}), {0});
}

// Number of nodes of an op in a graph.
std::int64_t count(const Graph& graph, const std::string& name) {
  return std::ranges::count_if(graph.nodes(), [&](const auto& node) { return node->op->name == name; });
}

// The rules of dot for a layer, weight stored either way: one dot each, and nothing turned round.
TEST(OpStructure, RulesOfDotNeedNoTransposeForLayers) {
  for (const auto& [weight, axis] : {std::pair{Shape{5, 7}, 0}, std::pair{Shape{7, 5}, 1}}) {
    const auto layer = trace(
        [&, axis = axis](In in) {
          return std::vector<Value>{dot(in[0], in[1], {{1}, {axis}, {}, {}})};
        },
        std::vector<ValueType>{{DType::F32, {3, 5}}, {DType::F32, weight}});
    const Node& node = *layer->nodes().back();
    const auto backward = trace(
        [&](In in) {
          const Value by_x = node.op->transpose({node, std::vector{Value{}, in[1]}, in.subspan(2)})[0];
          const Value by_weight = node.op->transpose({node, std::vector{in[0], Value{}}, in.subspan(2)})[1];
          return std::vector<Value>{by_x, by_weight};
        },
        std::vector<ValueType>{{DType::F32, {3, 5}}, {DType::F32, weight}, {DType::F32, {3, 7}}});
    EXPECT_EQ(count(*backward, "dot"), 2);
    EXPECT_EQ(count(*backward, "transpose"), 0);
  }
  // vmap of weight times vector is the layer above.
  const auto product = trace([](In in) { return std::vector<Value>{matmul(in[0], in[1])}; },
                             std::vector<ValueType>{{DType::F32, {7, 5}}, {DType::F32, {5}}});
  const Node& node = *product->nodes().back();
  const auto batched = trace(
      [&](In in) {
        return std::vector<Value>{
            node.op->batch({node, std::vector<ir::Batched>{{in[0], false}, {in[1], true}}, 3})[0].value};
      },
      std::vector<ValueType>{{DType::F32, {7, 5}}, {DType::F32, {3, 5}}});
  EXPECT_EQ(count(*batched, "dot"), 1);
  EXPECT_EQ(count(*batched, "transpose") + count(*batched, "broadcast"), 0);
}

TEST(OpValues, Broadcasting) {
  const auto column = Array::from<double>({10, 20}, {2, 1}), row = f64({1, 2, 3});
  const auto sum = run([](In in) { return in[0] + in[1]; }, {column, row});
  EXPECT_EQ(sum.shape(), Shape({2, 3}));
  expect_values(sum, {11, 12, 13, 21, 22, 23});
  expect_values(run([](In in) { return 1.0 - in[0] * 2.0; }, {row}), {-1, -3, -5});
  EXPECT_EQ(run([](In in) { return in[0] + in[1]; }, {Array::zeros(DType::F64, {0, 1}), row}).shape(), Shape({0, 3}));
}

// C's function of long double is the reference; the derivatives have known values.
TEST(OpValues, LogarithmOfTheGammaFunction) {
  std::vector<double> at;
  for (int i = 0; i < 6000; ++i) at.push_back(-20 + 0.01 * i + 0.0031);
  for (int i = -300; i < 300; i += 3) at.push_back(std::pow(10, i));
  const Array x = Array::from<double>(at, {static_cast<std::int64_t>(at.size())});
  Array single(DType::F32, x.shape());
  for (std::int64_t i = 0; i < x.size(); ++i) single.set(i, x.at(i));
  const Array y = run([](In in) { return lgamma(in[0]); }, {x}), z = run([](In in) { return lgamma(in[0]); }, {single});
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const auto wanted = static_cast<double>(lgammal(static_cast<long double>(x.at(i))));
    EXPECT_LE(std::fabs(y.at(i) - wanted), 8 * 0x1p-52 * std::fabs(wanted) + 8e-15) << x.at(i);
    const auto of_single = static_cast<double>(lgammal(static_cast<long double>(single.at(i))));
    if (of_single < 3e38)
      EXPECT_LE(std::fabs(z.at(i) - of_single), 0x1p-23 * std::fabs(of_single) + 8e-15) << single.at(i);
  }
  const Array ends = f64({0, -1, -7, inf, -inf});
  expect_values(run([](In in) { return lgamma(in[0]); }, {ends}), {inf, inf, inf, inf, inf});
  const double pi = std::numbers::pi, euler = std::numbers::egamma;
  const auto check = [](const Array& got, const std::vector<double>& wanted) {
    for (std::int64_t i = 0; i < got.size(); ++i) {
      const double w = wanted[static_cast<std::size_t>(i)];
      EXPECT_NEAR(got.at(i), w, 1e-13 * std::max(1.0, std::fabs(w))) << i;
    }
  };
  const Array points = f64({1, 2, 0.5, 0.25, -0.5});
  const std::vector<double> first{-euler, 1 - euler, -euler - 2 * std::log(2), -pi / 2 - 3 * std::log(2) - euler,
                                  2 - euler - 2 * std::log(2)},
      second{pi * pi / 6, pi * pi / 6 - 1, pi * pi / 2, pi * pi + 8 * 0.915965594177219015, pi * pi / 2 + 4};
  check(run([](In in) { return digamma(in[0]); }, {points}), first);
  check(run([](In in) { return grad([](In at) { return std::vector{sum(lgamma(at[0]))}; }, {0})(in)[0]; }, {points}),
        first);
  check(run([](In in) { return grad([](In at) { return std::vector{sum(digamma(at[0]))}; }, {0})(in)[0]; }, {points}),
        second);
  const Array poles = run([](In in) { return digamma(in[0]); }, {f64({0, -1, -3, inf})});
  EXPECT_EQ(poles.at(0), -inf);
  EXPECT_TRUE(std::isnan(poles.at(1)) && std::isnan(poles.at(2)));
  EXPECT_EQ(poles.at(3), inf);
}

TEST(OpValues, Compositions) {
  const auto x = Array::from<double>({1, 2, 3, -1, 0, 1000}, {2, 3});
  const auto soft = run([](In in) { return softmax(in[0], -1); }, {x});
  EXPECT_NEAR(soft.at(0), std::exp(1) / (std::exp(1) + std::exp(2) + std::exp(3)), 1e-15);
  EXPECT_EQ(soft.at(5), 1);
  const auto log_sum = run([](In in) { return logsumexp(in[0], 1); }, {x});
  EXPECT_NEAR(log_sum.at(0), std::log(std::exp(1) + std::exp(2) + std::exp(3)), 1e-15);
  EXPECT_EQ(log_sum.at(1), 1000);
  expect_values(run([](In in) { return logsumexp(in[0], 0); }, {f64({-inf, -inf})}), {-inf});
  expect_values(run([](In in) { return logsumexp(in[0], 0); }, {f64({inf, 1})}), {inf});
  expect_values(run([](In in) { return mean(in[0], {0, 1}); }, {Array::from<double>({1, 2, 3, 6}, {2, 2})}), {3});
  expect_values(run([](In in) { return variance(in[0], {-1}); }, {Array::from<double>({1, 3, 5, 5}, {2, 2})}), {1, 0});
  expect_values(run([](In in) { return softplus(in[0]); }, {f64({-1000, 0, 1000})}), {0, std::log1p(1), 1000});
  EXPECT_NEAR(run([](In in) { return gelu(in[0]); }, {f64({1})}).at(0), 0.8413447460685429, 1e-15);
  expect_values(run([](In in) { return stack(std::vector{in[0], in[0]}, -1); }, {f64({1, 2})}), {1, 1, 2, 2});
  expect_values(run([](In in) { return take(in[0], 1, -1); }, {x}), {3, 1000});
  expect_values(run([](In in) { return split(in[0], 3, 1)[1]; }, {x}), {2, 0});
  expect_values(run([](In in) { return rsqrt(reciprocal(square(in[0]))); }, {f64({2, 4})}), {2, 4});
  expect_values(run([](In in) { return sum(in[0]) / mean(in[0]); }, {f64({1, 2, 6})}), {3});
}

TEST(OpValues, MatmulFollowsNumPy) {
  const auto shape_of = [](const Shape& a, const Shape& b) {
    return run([](In in) { return matmul(in[0], in[1]); },
               {Array::full(DType::F32, a, 1), Array::full(DType::F32, b, 1)})
        .shape();
  };
  EXPECT_EQ(shape_of({3}, {3}), Shape{});
  EXPECT_EQ(shape_of({2, 3}, {3}), Shape({2}));
  EXPECT_EQ(shape_of({3}, {3, 4}), Shape({4}));
  EXPECT_EQ(shape_of({2, 3}, {3, 4}), Shape({2, 4}));
  EXPECT_EQ(shape_of({5, 2, 3}, {3, 4}), Shape({5, 2, 4}));
  EXPECT_EQ(shape_of({2, 3}, {5, 3, 4}), Shape({5, 2, 4}));
  EXPECT_EQ(shape_of({3}, {5, 3, 4}), Shape({5, 4}));
  EXPECT_EQ(shape_of({5, 1, 2, 3}, {6, 3, 4}), Shape({5, 6, 2, 4}));
  const auto product =
      run([](In in) { return matmul(in[0], in[1]); },
          {Array::from<double>({1, 2, 3, 4}, {2, 2}), Array::from<double>({1, 0, 0, 1, 2, 0, 0, 2}, {2, 2, 2})});
  expect_values(product, {1, 2, 3, 4, 2, 4, 6, 8});
}

// Powers in halves are products and roots in what is compiled, with the values of C at the edges but for the sign of a zero.
TEST(OpValues, PowersThatAreProductsAndRoots) {
  const std::vector<double> xs = {0.0, -0.0, 1, -1, 2.5, -3, 1e-300, 1e300, inf, -inf, nan, 0.3};
  for (const double exponent : {-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0}) {
    const auto graph = trace([&](In in) { return std::vector<Value>{pow(in[0], exponent)}; },
                             std::vector<ValueType>{{DType::F64, {static_cast<std::int64_t>(xs.size())}}});
    const Executable compiled = compile(graph);
    EXPECT_EQ(compiled.graph_text().find("pow"), std::string::npos) << compiled.graph_text();
    const Array got = compiled(std::vector<Array>{f64(xs)})[0];
    for (std::size_t i = 0; i < xs.size(); ++i) {
      const double wanted = std::pow(xs[i], exponent), found = got.at(static_cast<std::int64_t>(i));
      SCOPED_TRACE(std::to_string(xs[i]) + " to the power " + std::to_string(exponent));
      EXPECT_EQ(std::isnan(found), std::isnan(wanted));
      if (std::isnan(wanted)) continue;
      if (std::isinf(wanted))
        EXPECT_EQ(found, wanted);
      else
        EXPECT_NEAR(found, wanted, 3 * 2.3e-16 * std::fabs(wanted));
    }
  }
}

TEST(OpValues, FunctionsOfAValueAndANumberAreTheOperators) {
  const Array x = f64({-2, 0.5, 3});
  expect_values(run([](In in) { return maximum(in[0], 0); }, {x}), {0, 0.5, 3});
  expect_values(run([](In in) { return minimum(1, in[0]); }, {x}), {-2, 0.5, 1});
  expect_values(run([](In in) { return pow(in[0], 2); }, {x}), {4, 0.25, 9});
  expect_values(run([](In in) { return pow(2, in[0]); }, {x}), {0.25, std::sqrt(2.0), 8});
  expect_values(run([](In in) { return less(in[0], 0.5); }, {x}), {1, 0, 0});
  expect_values(run([](In in) { return less(0.5, in[0]); }, {x}), {0, 0, 1});
  expect_values(run([](In in) { return less_equal(in[0], 0.5); }, {x}), {1, 1, 0});
  expect_values(run([](In in) { return greater(0.5, in[0]); }, {x}), {1, 0, 0});
  expect_values(run([](In in) { return greater_equal(in[0], 0.5); }, {x}), {0, 1, 1});
  expect_values(run([](In in) { return equal(in[0], 3); }, {x}), {0, 0, 1});
  expect_values(run([](In in) { return not_equal(3, in[0]); }, {x}), {1, 1, 0});
}

TEST(OpValues, CompoundAssignmentMakesAnotherValue) {
  const auto chain = [](In in) {
    Value a = in[0];
    const Value before = a;
    a += 1;
    a *= in[0];
    a -= before;
    a /= 2;
    a += a;
    a -= 1;
    a *= 3;
    a /= before;
    return a;
  };
  expect_values(run(chain, {f64({2, -1})}), {4.5, 0});
}

}  // namespace
}  // namespace hotloop
