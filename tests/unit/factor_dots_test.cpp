// Products that share a factor and are added up are one product of a sum.
#include <gtest/gtest.h>

#include <vector>

#include "hotloop/graph.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "passes/pipeline.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;
constexpr DType f32 = DType::F32;
const ValueType a{f32, {6, 8}}, w{f32, {8, 5}};

std::shared_ptr<const Graph> optimized(const Function& f, const std::vector<ValueType>& types) {
  return passes::optimize(*trace(f, types), {});
}

// Numbers in the results of all products, on every level: where products that nothing reads are merged with others, there are more.
struct Dots {
  int count = 0;
  std::int64_t numbers = 0;
  bool operator==(const Dots&) const = default;
};
Dots dots(const Graph& graph) {
  Dots all;
  for (const auto& node : graph.nodes()) {
    if (ir::is(*node, ir::OpKind::Dot)) all = {all.count + 1, all.numbers + node->types[0].shape.size()};
    for (const auto& region : node->regions) {
      const Dots inner = dots(*region);
      all = {all.count + inner.count, all.numbers + inner.numbers};
    }
  }
  return all;
}
void PrintTo(const Dots& d, std::ostream* out) { *out << d.count << " dots of " << d.numbers << " numbers"; }

Dots dots(const Function& f, const std::vector<ValueType>& types) { return dots(*optimized(f, types)); }

TEST(FactorDots, OnTheRightOrOnTheLeft) {
  const auto right = [](Values in) { return std::vector{matmul(tanh(in[0]), in[2]) + matmul(exp(in[1]), in[2])}; };
  EXPECT_EQ(dots(right, {a, a, w}), (Dots{1, 30}));
  const auto left = [](Values in) { return std::vector{matmul(in[0], tanh(in[1])) + matmul(in[0], exp(in[2]))}; };
  EXPECT_EQ(dots(left, {a, w, w}), (Dots{1, 30}));
}

// Wherever they stand in a sum, and whatever else is in it.
TEST(FactorDots, AcrossASum) {
  const auto sum = [](Values in) {
    const Value x = in[0], u = in[1], v = in[2], b = in[3];
    const Value inner = (b + matmul(sin(x), u)) + (matmul(sin(x), v) + matmul(cos(x), u));
    return std::vector{(inner + matmul(tanh(x), v)) + (sigmoid(b) + matmul(exp(x), u))};
  };
  EXPECT_EQ(dots(sum, {a, w, w, {f32, {6, 5}}}), (Dots{2, 60}));
}

TEST(FactorDots, NotWhereAProductIsReadElsewhere) {
  const auto read_twice = [](Values in) {
    const Value product = matmul(tanh(in[0]), in[2]);
    return std::vector{sin(product), product + matmul(exp(in[1]), in[2])};
  };
  EXPECT_EQ(dots(read_twice, {a, a, w}), (Dots{2, 60}));
}

TEST(FactorDots, NotWhatLiesInMemory) {
  const auto inputs = [](Values in) { return std::vector{matmul(in[0], in[2]) + matmul(in[1], in[2])}; };
  EXPECT_EQ(dots(inputs, {a, a, w}), (Dots{2, 60}));
}

// What is the same in every iteration leaves the loop, alone.
TEST(FactorDots, NotWhatLeavesALoop) {
  const auto loop = [](Values in) {
    const Value x = in[0], u = in[1];
    const Value init[] = {x};
    const auto step = [&](Values c, Values) {
      const Value next = matmul(tanh(c[0]), u) + matmul(sin(x), u);
      return std::pair{std::vector{next}, std::vector<Value>{}};
    };
    return scan(step, init, {}, {3, false, ""}).first;
  };
  const auto graph = optimized(loop, {{f32, {6, 8}}, {f32, {8, 8}}});
  int outside = 0;
  for (const auto& node : graph->nodes()) outside += ir::is(*node, ir::OpKind::Dot);
  EXPECT_EQ(outside, 1) << graph->str();
  EXPECT_EQ(dots(*graph), (Dots{2, 96})) << graph->str();
}

// A difference is how compensated sums are made (docs/decisions/0010): nothing is taken out of its parentheses.
TEST(FactorDots, NotAcrossWhatIsGrouped) {
  const auto grouped = [](Values in) {
    const Value x = in[0], u = in[1], b = in[2];
    return std::vector{(matmul(sin(x), u) + (b - exp(b))) + matmul(cos(x), u)};
  };
  EXPECT_EQ(dots(grouped, {a, w, {f32, {6, 5}}}), (Dots{2, 60}));
}

// Gates, each sliced from a product that was written for it alone: backwards all are one product with the weights.
TEST(FactorDots, SlopesOfGatesThatWereSlicedOneByOne) {
  const Function slopes = grad(
      [](Values in) {
        Value total = constant(0.0);
        for (int k = 0; k < 4; ++k) total = total + sum(tanh(narrow(matmul(in[0], in[1]), 1, 8 * k, 8)) * (1.0 + k));
        return std::vector{total};
      },
      {0});
  EXPECT_EQ(dots(slopes, {{f32, {6, 8}}, {f32, {8, 32}}}), (Dots{2, 6 * 32 + 6 * 8}));
}

// x^T u + x^T v, where u and v are read by other products too: those that became one are not laid beside it.
TEST(FactorDots, ProductsThatBecameOneAreGone) {
  const auto program = [](Values in) {
    const Value x = in[0], y = in[1], weights = in[2], u = tanh(y), v = exp(y);
    const auto back = [&](Value slope) { return matmul(slope, transpose(weights, {1, 0})); };
    const Value sum = dot(x, u, {{0}, {0}, {}, {}}) + dot(x, v, {{0}, {0}, {}, {}});
    return std::vector{sum, sin(back(u)) * cos(back(v))};
  };
  EXPECT_EQ(dots(program, {a, {f32, {6, 5}}, w}), (Dots{3, 8 * 5 + 2 * 6 * 8}));
}

// The slope of a bias that is read in parts: what is kept for the weights, reduced once, and no sum for each part.
TEST(FactorDots, SlopesOfABiasThatWasSliced) {
  const Function loss = [](Values in) {
    const Value weights = in[1], bias = in[2];
    const Value init[] = {in[0]};
    const auto step = [&](Values c, Values) {
      const auto gate = [&](std::int64_t k) { return narrow(matmul(c[0], weights) + bias, 1, 8 * k, 8); };
      return std::pair{std::vector{sigmoid(gate(0)) * tanh(gate(1)) * cos(gate(2))}, std::vector<Value>{}};
    };
    return std::vector{sum(scan(step, init, {}, {5, false, ""}).first[0])};
  };
  const auto graph = optimized(grad(loss, {1, 2}), {{f32, {6, 8}}, {f32, {8, 24}}, {f32, {24}}});
  std::vector<ir::LoopView> loops;
  for (const auto& node : graph->nodes())
    if (ir::is(*node, ir::OpKind::Loop)) loops.emplace_back(*node);
  ASSERT_EQ(loops.size(), 2u) << graph->str();
  EXPECT_EQ(loops[1].num_carry(), 1) << graph->str();
}

}  // namespace
}  // namespace hotloop
