// Programs in which a rule of a pass applies but for one of its conditions: they compute what they say.
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "compiled.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "op_checks.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;
using Arrays = std::vector<Array>;

Array filled(const ValueType& type, std::initializer_list<double> numbers) {
  Array x(type.dtype, type.shape);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, numbers.begin()[static_cast<std::size_t>(i) % numbers.size()]);
  return x;
}

// NaN is to be where the definition has it, too.
void expect_as_defined(const Function& f, const Arrays& inputs, double tolerance = 1e-5) {
  std::vector<ValueType> types;
  for (const Array& x : inputs) types.push_back(x.type());
  const auto graph = trace(f, types);
  const Arrays wanted = ir::evaluate(*graph, inputs);
  for (const Compiled& c : all_compiled()) {
    SCOPED_TRACE(name_of_case(c));
    const Arrays got = compile(graph, c.options())(inputs);
    for (std::size_t k = 0; k < wanted.size(); ++k)
      for (std::int64_t i = 0; i < wanted[k].size(); ++i) {
        const double w = wanted[k].at(i), g = got[k].at(i);
        if (std::isfinite(w))
          ASSERT_NEAR(g, w, tolerance * std::abs(w)) << "result " << k << ", element " << i;
        else
          ASSERT_TRUE(std::isnan(w) ? std::isnan(g) : g == w) << g << " is not " << w;
      }
  }
}

// The number beside a pad is added at each step, not once.
TEST(RuleConditions, PadsOfAccumulatedSumsKeepTheirNumber) {
  for (const bool changes : {false, true}) {
    const auto f = [changes](Values v) {
      const Value zero = constant(0, DType::F32, {3, 2}), init[] = {zero, v[1]};
      const ScanBody step = [changes](Values c, Values x) {
        const Value h = tanh(c[1] + x[0]), product = dot(h, x[0], {{0}, {0}});
        const Value number = changes ? reshape(slice(h, {0, 0}, {1, 1}), {}) : constant(1, DType::F32, {});
        return std::pair(std::vector{c[0] + pad(product, number, {1, 0}, {0, 0}), h}, std::vector<Value>{});
      };
      return std::vector{scan(step, init, v.first(1)).first[0]};
    };
    expect_as_defined(f, {filled({DType::F32, {3, 2, 2}}, {1, 0.5, -0.25}), filled({DType::F32, {2, 2}}, {0})});
  }
}

TEST(RuleConditions, UnsignedNumbersAreTheirOwnMagnitude) {
  expect_as_defined(
      [](Values v) {
        return std::vector{abs(-v[0]), abs(abs(v[0]) - constant(7, DType::U32, v[0].shape()))};
      },
      {filled({DType::U32, {6}}, {0, 1, 5, 2147483648.0, 4294967295.0, 7})});
}

// Scalings as in Sinkhorn's iteration: a factor that left its product would leave the other without what keeps it in range.
TEST(RuleConditions, FactorsOfProductsStayTogether) {
  const auto outer = [](Value rows, Value columns) {
    return broadcast(exp(rows), {40, 48}, {0}) * broadcast(exp(columns), {40, 48}, {1});
  };
  const Arrays inputs = {filled({DType::F32, {40}}, {-80, -60, -70}), filled({DType::F32, {48}}, {80, 79, 60}),
                         filled({DType::F32, {48}}, {1e8, 1e5})};
  expect_as_defined([&](Values v) { return std::vector{matmul(outer(v[0], v[1]), v[2])}; }, inputs);
  const auto in_loop = [&](Values v) {
    const Value kernel = outer(v[0], v[1]), init[] = {v[2]};
    const ScanBody step = [&](Values c, Values) {
      return std::pair(std::vector{c[0] + 0.001 * sum(matmul(kernel, c[0]))}, std::vector<Value>{});
    };
    return scan(step, init, {}, {.length = 4}).first;
  };
  expect_as_defined(in_loop, inputs);
}

// The embedding's gradient: rows that nobody looked up have none, whatever the weights behind them are.
TEST(RuleConditions, RowsWithoutPlacesHaveNoGradient) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto loss = [](Values v) { return std::vector{sum(matmul(gather(v[0], v[1], 0), v[2]) * v[3])}; };
  expect_as_defined(
      grad(loss, {0}),
      {filled({DType::F32, {5, 16}}, {0.5, -1, 2}), filled({DType::I32, {400}}, {0, 2, 1}),
       filled({DType::F32, {16, 8}}, {1, 2, infinity, -1, 3, 5, 7}), filled({DType::F32, {400, 8}}, {0.25, 1, -0.5})});
}

// A mean is a product with a repeat of 1 / n: numbers whose sum is infinite have one.
TEST(RuleConditions, RepeatedFactorsScaleBeforeTheSum) {
  const double infinity = std::numeric_limits<double>::infinity();
  const ValueType row{DType::F32, {10}};
  const auto product = [](Values v) {
    return std::vector{matmul(v[0], broadcast(v[1], {10}, {})), matmul(v[0], constant(0.1, DType::F32, {10}))};
  };
  expect_as_defined(product, {filled(row, {1e38}), filled({DType::F32, {}}, {0.1})});
  expect_as_defined(product, {filled(row, {2, -1, 0}), filled({DType::F32, {}}, {infinity})});
  const auto is_taken = [](Values v) {
    return std::vector{matmul(v[0], broadcast(cast(greater(v[1], 0.5), DType::F32), {10}, {}))};
  };
  expect_as_defined(is_taken, {filled(row, {1e38}), filled({DType::F32, {}}, {0.1})});
}

TEST(RuleConditions, PartsOfOneNumberHaveItsSign) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double second : {-0.0, 0.0, nan}) {
    const auto f = [second](Values v) {
      const Value parts[] = {constant(0.0, DType::F32, {3}), constant(second, DType::F32, {3})};
      return std::vector{v[0] / concat(parts, 0)};
    };
    expect_as_defined(f, {filled({DType::F32, {6}}, {1})});
  }
}

// Compiled alone: the definition would write the repeats down.
TEST(RuleConditions, SumsOfManyRepeatsWrapAround) {
  const std::int64_t count = (std::int64_t{1} << 32) + (std::int64_t{1} << 31) + 5;
  const auto sum_of = [&](const auto x) {
    const Array number = Array::scalar(x);
    const auto f = [&](Values v) { return std::vector{reduce_sum(broadcast(v[0], {count}, {}), {0})}; };
    const auto graph = trace(f, std::vector<ValueType>{number.type()});
    return compile(graph)(std::vector{number})[0].template data<std::remove_const_t<decltype(x)>>()[0];
  };
  EXPECT_EQ(sum_of(std::int32_t{3}), std::int32_t{-2147483633});
  EXPECT_EQ(sum_of(std::uint32_t{3}), std::uint32_t{2147483663});
  EXPECT_EQ(sum_of(std::int64_t{3}), 3 * count);
}

TEST(RuleConditions, IndicesAreComparedWithAnyNumber) {
  const auto f = [](Values v) {
    const Value i = narrow(iota(DType::I64, {405}, 0), 0, 5, 400), lowest = constant(-0x1p63, DType::I64, {400});
    const Value is_inside = bit_and(greater_equal(i, lowest), greater_equal(i, 105.0));
    return std::vector{select(is_inside, v[0], v[1]), select(less(reverse(i, {0}), lowest), v[0], v[1])};
  };
  expect_as_defined(f, {filled({DType::F32, {400}}, {1, 2}), filled({DType::F32, {400}}, {3, 4})});
}

}  // namespace
}  // namespace hotloop::testing
