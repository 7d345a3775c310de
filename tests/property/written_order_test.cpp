// Sums without products keep the order in which they were written (docs/decisions/0010): what is compiled is what evaluate() gives, to
// the bit, and compensated sums stay compensated.
#include <cmath>
#include <random>

#include "compiled.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "op_checks.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;
using Arrays = std::vector<Array>;
constexpr std::int64_t lanes = 5, steps = 1000;

// The sum of xs (T, N) after a compensated step, (s, c, x) -> (s, c), and s + c as last.
Function summed(std::vector<Value> (*step)(Values, Value)) {
  return [step](Values v) {
    const Value zero = constant(0, DType::F32, {lanes}), init[] = {zero, zero}, xs[] = {v[0]};
    const auto carry = scan(
                           [&](Values c, Values x) {
                             return std::pair{step(c, x[0]), std::vector<Value>{}};
                           },
                           init, xs)
                           .first;
    return std::vector{carry[0], carry[1], carry[0] + carry[1]};
  };
}

std::vector<Value> kahan(Values v, Value x) {
  const Value y = x - v[1], t = v[0] + y;
  return {t, (t - v[0]) - y};
}
// The forms in which what was lost is added up; the second is free of branches (Knuth's two-sum).
std::vector<Value> neumaier(Values v, Value x) {
  const Value t = v[0] + x, large = greater_equal(abs(v[0]), abs(x));
  return {t, v[1] + (select(large, v[0] - t, x - t) + select(large, x, v[0]))};
}
std::vector<Value> two_sum(Values v, Value x) {
  const Value t = v[0] + x, part = t - v[0];
  return {t, v[1] + ((v[0] - (t - part)) + (x - part))};
}
std::vector<Value> fast_two_sum(Values v, Value x) {
  const Value t = v[0] + x;
  return {t, v[1] + ((v[0] - t) + x)};
}
std::vector<Value> with_negation(Values v, Value x) {
  const Value t = v[0] + x;
  return {t, v[1] + ((-t + v[0]) + x)};
}

TEST(WrittenOrder, CompensatedSumsStayCompensated) {
  Array xs(DType::F32, {steps, lanes});
  std::mt19937_64 rng(1);
  for (std::int64_t i = 0; i < xs.size(); ++i)
    xs.set(i, i < lanes ? 1e7 : std::uniform_real_distribution<double>(0, 1)(rng));
  double exact = 0;
  for (std::int64_t t = 0; t < steps; ++t) exact += xs.at(t * lanes);
  const std::vector<std::pair<std::string, std::vector<Value> (*)(Values, Value)>> ways = {
      {"kahan", kahan},
      {"neumaier", neumaier},
      {"two_sum", two_sum},
      {"fast_two_sum", fast_two_sum},
      {"with_negation", with_negation}};
  for (const auto& [name, step] : ways) {
    SCOPED_TRACE(name);
    const auto graph = trace(summed(step), std::vector{xs.type()});
    const Arrays inputs{xs}, wanted = ir::evaluate(*graph, inputs);
    EXPECT_NEAR(wanted[name == "kahan" ? 0 : 2].at(0), exact, 1);
    for (const Compiled& c : all_compiled()) {
      const Arrays got = compile(graph, c.options())(inputs);
      for (std::size_t k = 0; k < wanted.size(); ++k)
        for (std::int64_t i = 0; i < lanes; ++i) ASSERT_EQ(got[k].at(i), wanted[k].at(i)) << name_of_case(c);
    }
  }
}

// The same number added at each step is a term that is the same in every iteration: it may not leave the parentheses either.
TEST(WrittenOrder, OfWhatIsTheSameInEveryIteration) {
  const Function fn = [](Values v) {
    const Value init[] = {v[0], constant(0, DType::F32, {lanes})};
    const auto carry = scan(
                           [&](Values c, Values) {
                             const Value t = c[0] + v[1];
                             return std::pair{std::vector{t, c[1] + (v[1] + (c[0] - t))}, std::vector<Value>{}};
                           },
                           init, {}, {steps, false, ""})
                           .first;
    return std::vector{carry[0], carry[1]};
  };
  const Arrays inputs{Array::full(DType::F32, {lanes}, 1e7), Array::full(DType::F32, {lanes}, 0.3)};
  const auto graph = trace(fn, std::vector{inputs[0].type(), inputs[1].type()});
  const Arrays wanted = ir::evaluate(*graph, inputs), got = compile(graph)(inputs);
  EXPECT_NEAR(wanted[0].at(0) + wanted[1].at(0), 1e7 + 300, 1);
  for (std::size_t k = 0; k < 2; ++k) EXPECT_EQ(got[k].at(0), wanted[k].at(0));
}

// A product in a compensated sum: the sum over the steps may not be taken out of the loop term by term.
TEST(WrittenOrder, OfProductsInACompensatedSum) {
  const Function fn = [](Values v) {
    const Value zero = constant(0, DType::F32, {4, 4}), init[] = {zero + 1e7, zero}, xs[] = {v[0], v[1]};
    const auto carry = scan(
                           [&](Values c, Values x) {
                             const Value product = matmul(expand_dims(x[0], 1), expand_dims(x[1], 0));
                             const Value t = c[0] + product;
                             return std::pair{std::vector{t, c[1] + ((c[0] - t) + product)}, std::vector<Value>{}};
                           },
                           init, xs)
                           .first;
    return std::vector{carry[0], carry[1]};
  };
  std::mt19937_64 rng(2);
  Arrays inputs{Array(DType::F32, {steps, 4}), Array(DType::F32, {steps, 4})};
  for (Array& a : inputs)
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, std::uniform_real_distribution<double>(0, 1)(rng));
  const auto graph = trace(fn, std::vector{inputs[0].type(), inputs[1].type()});
  const Arrays got = compile(graph)(inputs);
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 4; ++j) {
      double exact = 1e7;
      for (std::int64_t t = 0; t < steps; ++t) exact += inputs[0].at(t * 4 + i) * inputs[1].at(t * 4 + j);
      EXPECT_NEAR(got[0].at(i * 4 + j) + got[1].at(i * 4 + j), exact, 0.01);
    }
}

// Random trees of sums, differences and products of numbers of very different size, alone and inside a loop.
TEST(WrittenOrder, RandomSumsAreTheOraclesToTheBit) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Function tree = [&](Values v) {
      std::mt19937_64 rng(seed);
      std::vector<Value> all(v.begin(), v.end());
      for (int k = 0; k < 14; ++k) {
        const Value a = all[rng() % all.size()], b = all[rng() % all.size()];
        const auto op = rng() % 8;
        all.push_back(op < 5 ? a + b : op < 7 ? a - b : a * b * 0.5);
      }
      // Everything that nothing reads yet, in one sum.
      Value total = all.back();
      for (std::size_t k = all.size() - 1; k-- > 0;) total = rng() % 2 ? all[k] + total : total + all[k];
      return std::vector{total};
    };
    const Function looped = [&](Values v) {
      const Value init[] = {v[0]};
      return scan(
                 [&](Values c, Values) {
                   const Value in[] = {c[0], v[1], v[2], v[3]};
                   return std::pair{std::vector{tree(in)[0] * 1e-3}, std::vector<Value>{}};
                 },
                 init, {}, {3, false, ""})
          .first;
    };
    std::mt19937_64 rng(seed + 1000);
    Arrays inputs;
    for (const double scale : {1.0, 1e6, 1e-3, 1e3}) {
      Array a(DType::F32, {7});
      for (std::int64_t i = 0; i < 7; ++i) a.set(i, scale * std::normal_distribution<double>()(rng));
      inputs.push_back(a);
    }
    for (const Function& fn : {tree, looped}) {
      const auto graph = trace(fn, std::vector<ValueType>(4, inputs[0].type()));
      const Arrays wanted = ir::evaluate(*graph, inputs), got = compile(graph)(inputs);
      for (std::int64_t i = 0; i < 7; ++i)
        if (!std::isnan(wanted[0].at(i))) ASSERT_EQ(got[0].at(i), wanted[0].at(i)) << ir::print(*graph);
    }
  }
}

// Pads of parts, which are joined where they lie side by side: at every place the numbers are added up as they were written.
TEST(WrittenOrder, OfPadsOfParts) {
  constexpr std::int64_t n = 12;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Function fn = [&](Values v) {
      std::mt19937_64 rng(seed);
      const bool chain = seed % 2 == 0;
      std::vector<Value> all;
      for (std::size_t k = 0; k < 7; ++k) {
        const Value x = v[rng() % v.size()] * (1.0 + 0.25 * static_cast<double>(k));
        if (rng() % 4 == 0) {
          all.push_back(x);
          continue;
        }
        // Often side by side, often at one place, sometimes across.
        const auto length = static_cast<std::int64_t>(rng() % 3 ? 4 : 6);
        const auto low = static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>((n - length) / 2 + 1)) * 2;
        all.push_back(pad(narrow(x, 0, low, length), like(x, 0), {low}, {n - low - length}));
      }
      while (all.size() > 1) {
        const std::size_t a = chain ? 0 : rng() % (all.size() - 1);
        all[a] = rng() % 2 && !chain ? all[a + 1] + all[a] : all[a] + all[a + 1];
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(a) + 1);
      }
      return std::vector{all[0]};
    };
    std::mt19937_64 rng(seed + 1000);
    Arrays inputs;
    for (const double scale : {1.0, 1e6, 1e-3, 1e3}) {
      Array a(DType::F32, {n});
      for (std::int64_t i = 0; i < n; ++i) a.set(i, scale * std::normal_distribution<double>()(rng));
      inputs.push_back(a);
    }
    const auto graph = trace(fn, std::vector<ValueType>(4, inputs[0].type()));
    const Arrays wanted = ir::evaluate(*graph, inputs), got = compile(graph)(inputs);
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(got[0].at(i), wanted[0].at(i)) << ir::print(*graph);
  }
}

}  // namespace
}  // namespace hotloop::testing
