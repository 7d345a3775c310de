// Which straight code becomes loops, and that loops found are like those that were written.
#include "ops/composed/reroll.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "arrays.h"
#include "hotloop/hotloop.h"
#include "ir/op_def.h"
#include "ir/rewrite.h"
#include "ops/rules/sampling.h"
#include "passes/pipeline.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

std::vector<const Node*> loops_of(const Graph& graph) {
  std::vector<const Node*> loops;
  for (const auto& node : graph.nodes())
    if (ir::is(*node, ir::OpKind::Loop)) loops.push_back(node.get());
  return loops;
}

Value cell(Value h, Value x, Value w) { return tanh(matmul(h, w) + x); }

// x [steps, 4, 3], w [3, 3]
std::vector<Value> straight(Values in) {
  Value h = constant(0, DType::F32, {4, 3});
  for (std::int64_t t = 0; t < in[0].shape()[0]; ++t) h = cell(h, take(in[0], 0, t), in[1]);
  return {sum(h * h)};
}
std::vector<Value> scanned(Values in) {
  const auto body = [&](Values carry, Values x) {
    return std::pair{std::vector{cell(carry[0], x[0], in[1])}, std::vector<Value>{}};
  };
  const std::vector<Value> init{constant(0, DType::F32, {4, 3})}, xs{in[0]};
  const Value h = scan(body, init, xs).first[0];
  return {sum(h * h)};
}
std::vector<ValueType> types(std::int64_t steps) { return {{DType::F32, {steps, 4, 3}}, {DType::F32, {3, 3}}}; }

TEST(Reroll, StepsAreTheLoopThatSomebodyWroteAsOne) {
  for (const bool differentiated : {false, true}) {
    const auto of = [&](const Function& fn, std::int64_t steps) {
      return trace(differentiated ? value_and_grad(fn, {0, 1}) : fn, types(steps));
    };
    const auto optimized = [](const std::shared_ptr<Graph>& graph) { return passes::optimize(*graph, {}); };
    const auto loop = optimized(of(scanned, 20));
    const auto found = optimized(of(straight, 20)), longer = optimized(of(straight, 40));
    EXPECT_EQ(ir::count_nodes(*found), ir::count_nodes(*loop)) << found->str() << loop->str();
    EXPECT_EQ(ir::count_nodes(*longer), ir::count_nodes(*loop));
    EXPECT_EQ(loops_of(*found).size(), loops_of(*loop).size());
    EXPECT_EQ(ir::LoopView(*loops_of(*longer)[0]).length(), 40);
    std::mt19937_64 rng(1);
    const std::vector<Array> in{ir::random_array(rng, DType::F32, {20, 4, 3}),
                                ir::random_array(rng, DType::F32, {3, 3})};
    const std::vector<Array> want = compile(of(scanned, 20))(in), got = compile(of(straight, 20))(in);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(testing::same_bits(got[i], want[i])) << i;
  }
}

TEST(Reroll, BeforeAJacobianIsPlanned) {
  const auto step = [](Value v, Values in) {
    return v + 0.01 * sin(v * take(in[0], 0, 0) - v * v * take(in[0], 0, 1));
  };
  const auto written_out = [&](Values in) {
    Value v = in[1] * take(in[0], 0, 2);
    for (int t = 0; t < 40; ++t) v = step(v, in);
    return std::vector{reduce_sum(v, {1})};
  };
  const auto as_scan = [&](Values in) {
    const Value init[] = {in[1] * take(in[0], 0, 2)};
    const auto body = [&](Values v, Values) { return std::pair{std::vector{step(v[0], in)}, std::vector<Value>{}}; };
    return std::vector{reduce_sum(scan(body, init, {}, {.length = 40}).first[0], {1})};
  };
  const auto optimized = [](const Function& fn) {
    const auto values = [&](Values in) { return std::vector{jacobian(fn)(in).values()}; };
    return passes::optimize(*trace(values, std::vector<ValueType>{{DType::F64, {3}}, {DType::F64, {40, 3}}}), {});
  };
  const auto found = optimized(written_out), loop = optimized(as_scan);
  EXPECT_EQ(ir::count_nodes(*found), ir::count_nodes(*loop)) << found->str() << loop->str();
}

TEST(Reroll, FewStepsAndOtherWeightsStay) {
  EXPECT_TRUE(ir::reroll(*trace(straight, types(8))));
  EXPECT_FALSE(ir::reroll(*trace(straight, types(7))));
  // A layer has weights of its own: they would have to be copied beside each other.
  const auto layers = [](Values in) {
    Value h = in[0];
    for (std::size_t i = 1; i < in.size(); ++i) h = tanh(matmul(h, in[i]));
    return std::vector<Value>{h};
  };
  EXPECT_FALSE(ir::reroll(*trace(layers, std::vector<ValueType>(13, {DType::F32, {3, 3}}))));
  // Nor are a few elementwise steps more than a formula.
  const auto formula = [](Values in) {
    Value x = in[0];
    for (int i = 0; i < 12; ++i) x = sin(x * 1.5);
    return std::vector<Value>{x};
  };
  EXPECT_FALSE(ir::reroll(*trace(formula, std::vector<ValueType>{{DType::F32, {8}}})));
}

TEST(Reroll, LayersAndSequencesAreLoopsOfTheirOwn) {
  for (const bool one_weight : {false, true}) {
    const auto fn = [=](Values in) {
      const Value start = constant(0, DType::F32, {4, 3});
      std::vector<Value> sequence;
      for (std::int64_t t = 0; t < 20; ++t) sequence.push_back(take(in[0], 0, t));
      for (std::size_t layer = 0; layer < 3; ++layer) {
        Value h = start;
        for (Value& x : sequence) x = h = cell(h, x, in[one_weight ? 1 : 1 + layer]);
      }
      return std::vector<Value>{sequence.back()};
    };
    const std::vector<ValueType> of{
        {DType::F32, {20, 4, 3}}, {DType::F32, {3, 3}}, {DType::F32, {3, 3}}, {DType::F32, {3, 3}}};
    const auto rolled = ir::reroll(*trace(fn, of));
    ASSERT_TRUE(rolled);
    const auto loops = loops_of(*rolled);
    ASSERT_EQ(loops.size(), 3u);
    for (const Node* loop : loops) EXPECT_EQ(ir::LoopView(*loop).length(), 20);
  }
}

TEST(Reroll, AnAxisThatMayNotBeScannedIsNot) {
  const auto graph = trace(straight, types(16));
  EXPECT_FALSE(ir::reroll(*graph, [](std::int64_t extent) { return extent != 16; }));
  EXPECT_TRUE(ir::reroll(*graph, [](std::int64_t extent) { return extent != 4; }));
}

// Nothing advances in slices without elements.
TEST(Reroll, StepsMayCutSlicesWithoutElements) {
  const auto fn = [](Values in) {
    Value h = narrow(in[0], 0, 0, 4);
    for (int t = 0; t < 24; ++t) {
      const Value nothing = narrow(in[0], 0, t, 0), now = concat({nothing, narrow(in[0], 0, t, 4)}, 0);
      h = tanh(h * 0.5 + now + sum(h));
    }
    return std::vector<Value>{h};
  };
  std::mt19937_64 rng(1);
  const std::vector<Array> in{ir::random_array(rng, DType::F32, {40})};
  const auto graph = trace(fn, std::vector<ValueType>{in[0].type()});
  const std::vector<Array> want = ir::evaluate(*graph, in), got = compile(graph)(in);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(got[0].at(i), want[0].at(i), 1e-5) << i;
}

TEST(Reroll, StepsMayHoldLoopsAndCalls) {
  const auto fn = [](Values in) {
    Value h = in[1];
    for (int t = 0; t < 10; ++t) {
      const auto body = [&](Values carry, Values x) {
        return std::pair{std::vector{cell(carry[0], x[0], in[2])}, std::vector<Value>{}};
      };
      const std::vector<Value> init{h}, xs{in[0]};
      h = h + expand_dims(logsumexp(scan(body, init, xs).first[0], 1), 1) * (0.1 * t);
    }
    return std::vector<Value>{sum(h)};
  };
  const std::vector<ValueType> of{{DType::F32, {5, 4, 3}}, {DType::F32, {4, 3}}, {DType::F32, {3, 3}}};
  const auto rolled = ir::reroll(*trace(fn, of));
  ASSERT_TRUE(rolled);
  ASSERT_EQ(loops_of(*rolled).size(), 1u);
  EXPECT_EQ(loops_of(ir::LoopView(*loops_of(*rolled)[0]).body()).size(), 1u);
}

}  // namespace
}  // namespace hotloop
