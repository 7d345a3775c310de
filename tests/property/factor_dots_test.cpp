// Sums of products that share factors, joined or not, are the oracle's to rounding: within a few units in the last place of the sum of the terms' absolute
// values, also where large terms cancel, alone and in a loop, backwards too.
#include <cmath>
#include <limits>
#include <random>

#include "compiled.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "op_checks.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;
constexpr std::int64_t rows = 7, in = 19, out = 6;

// A sum of products of a few factors, as a random tree; of absolute values if `absolute`. v: x (rows, in), u and w (in, out), b (rows, out).
Function sum_of_products(std::uint64_t seed, bool absolute) {
  return [=](Values v) {
    std::mt19937_64 rng(seed);
    const auto plain = [&](Value x) { return absolute ? abs(x) : x; };
    const std::vector<Value> xs = {plain(sin(v[0])), plain(v[0] * 100.0), plain(cos(v[0]) * -100.0), plain(v[0])};
    const std::vector<Value> ws = {plain(v[1]), plain(v[2]), plain(tanh(v[1]) * 10.0)};
    std::vector<Value> terms;
    for (int k = 0; k < 6; ++k)
      terms.push_back(rng() % 6 == 0 ? plain(v[3]) : matmul(xs[rng() % xs.size()], ws[rng() % ws.size()]));
    while (terms.size() > 1) {
      const std::size_t k = rng() % (terms.size() - 1);
      terms[k] = terms[k] + terms[k + 1];
      terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(k) + 1);
    }
    return std::vector{terms[0]};
  };
}

TEST(FactorDots, AreTheOraclesToRounding) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed + 1000);
    std::vector<Array> inputs;
    std::vector<ValueType> types;
    for (const Shape& shape : {Shape{rows, in}, Shape{in, out}, Shape{in, out}, Shape{rows, out}}) {
      Array x(DType::F32, shape);
      for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, std::normal_distribution<double>()(rng));
      types.push_back(x.type());
      inputs.push_back(x);
    }
    const auto graph = trace(sum_of_products(seed, false), types);
    const Array wanted = ir::evaluate(*graph, inputs)[0];
    const Array size = ir::evaluate(*trace(sum_of_products(seed, true), types), inputs)[0];
    // Six terms of `in` products each, added in two orders.
    const double unit = 2.0 * (in + 8) * std::numeric_limits<float>::epsilon();
    for (const Compiled& c : seed % 8 == 0 ? all_compiled() : llvm_targets()) {
      const Array got = compile(graph, c.options())(inputs)[0];
      for (std::int64_t i = 0; i < wanted.size(); ++i)
        ASSERT_LE(std::abs(got.at(i) - wanted.at(i)), unit * size.at(i)) << name_of_case(c) << ", element " << i;
    }
  }
}

// The same sum as one step of a loop, with its derivatives by everything: with and without the pass, in f64.
TEST(FactorDots, DerivativesThroughLoops) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const Function loss = [&](Values v) {
      const Value init[] = {v[0]};
      const auto step = [&](Values c, Values) {
        const Value all[] = {c[0], v[1], v[2], v[3]};
        const Value sum = sum_of_products(seed, false)(all)[0];
        const Value gates[] = {tanh(sum * 0.01), sigmoid(sum), cos(sum), narrow(c[0], 1, 0, in - 3 * out)};
        return std::pair{std::vector{concat(gates, 1)}, std::vector<Value>{}};
      };
      return std::vector{sum(scan(step, init, {}, {3, false, ""}).first[0])};
    };
    std::mt19937_64 rng(seed + 2000);
    std::vector<Array> inputs;
    std::vector<ValueType> types;
    for (const Shape& shape : {Shape{rows, in}, Shape{in, out}, Shape{in, out}, Shape{rows, out}}) {
      Array x(DType::F64, shape);
      for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, std::normal_distribution<double>(0, 0.01)(rng));
      types.push_back(x.type());
      inputs.push_back(x);
    }
    const auto graph = trace(grad(loss, {0, 1, 2, 3}), types);
    const auto wanted = ir::evaluate(*graph, inputs);
    for (const bool is_on : {true, false}) {
      CompileOptions options;
      if (!is_on) options.disabled_passes = {"factor_dots"};
      const auto got = compile(graph, options)(inputs);
      for (std::size_t k = 0; k < wanted.size(); ++k) {
        double most = 0;
        for (std::int64_t i = 0; i < wanted[k].size(); ++i) most = std::max(most, std::abs(wanted[k].at(i)));
        for (std::int64_t i = 0; i < wanted[k].size(); ++i)
          ASSERT_NEAR(got[k].at(i), wanted[k].at(i), 1e-10 * most) << is_on << ", result " << k;
      }
    }
  }
}

}  // namespace
}  // namespace hotloop::testing
