// What the transforms must leave out: dead work, residuals that need not be saved, values of lanes that have finished.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/rewrite.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

ValueType f64(std::initializer_list<std::int64_t> shape) { return {DType::F64, Shape(shape)}; }

std::vector<ir::LoopView> loops_of(const Graph& graph) {
  std::vector<ir::LoopView> loops;
  for (const auto& node : graph.nodes())
    if (ir::is(*node, ir::OpKind::Loop)) loops.emplace_back(*node);
  return loops;
}

// loss(x[T, B, I], w[I, H], u[H, H], b[H]) of a plain recurrent network.
std::vector<Value> rnn_loss(Values v, const std::string& residuals) {
  const Value init[] = {zeros_like(matmul(take(v[0], 0, 0), v[1]))}, xs[] = {v[0]};
  auto [carry, ys] = scan(
      [&](Values h, Values x) {
        const Value next = tanh(matmul(x[0], v[1]) + matmul(h[0], v[2]) + v[3]);
        return std::pair{std::vector<Value>{next}, std::vector<Value>{next}};
      },
      init, xs, {-1, false, residuals});
  return {sum(carry[0] * carry[0])};
}
const std::vector<ValueType> rnn_types{f64({5, 2, 3}), f64({3, 4}), f64({4, 4}), f64({4})};

TEST(TransformsStructure, WeightGradientsAreSumsThatTheBodyDoesNotRead) {
  const auto graph = trace(grad([](Values v) { return rnn_loss(v, ""); }, {1, 2, 3}), rnn_types);
  ir::verify(*graph);
  const auto loops = loops_of(*graph);
  ASSERT_EQ(loops.size(), 2u) << graph->str();
  const ir::LoopView& backward = loops[1];
  EXPECT_TRUE(backward.reverse());
  ASSERT_EQ(backward.num_carry(), 4) << graph->str();  // dh, and sums for w, u, b
  EXPECT_EQ(backward.num_ys(), 0);
  int num_sums = 0;
  const ir::Uses uses(backward.body());
  for (int i = 0; i < backward.num_carry(); ++i) {
    const auto read = uses.of(backward.carry_in(i));
    if (read.size() != 1 || read[0].node->op->name != "add" || backward.carry_out(i).node != read[0].node) continue;
    const Value product = read[0].node->operands[1 - static_cast<std::size_t>(read[0].operand)];
    const auto kind = product.node->op->kind;
    if (kind == ir::OpKind::Dot || kind == ir::OpKind::Reduce) ++num_sums;
  }
  EXPECT_EQ(num_sums, 3) << graph->str();
}

TEST(TransformsStructure, ForwardSavesOnlyWhatVariesAndIsRead) {
  const auto graph = trace(grad([](Values v) { return rnn_loss(v, ""); }, {1, 2, 3}), rnn_types);
  const ir::LoopView forward = loops_of(*graph)[0];
  // The carry-in h and 1 - h^2; x is an xs of both loops, weights are consts, y is not used.
  EXPECT_EQ(forward.num_ys(), 2) << graph->str();
  const ir::LoopView backward = loops_of(*graph)[1];
  EXPECT_EQ(backward.num_xs(), 3) << graph->str();
}

TEST(TransformsStructure, RecomputeSavesTheCarryAlone) {
  const auto graph = trace(grad([](Values v) { return rnn_loss(v, "recompute"); }, {1, 2, 3}), rnn_types);
  const auto loops = loops_of(*graph);
  ASSERT_EQ(loops.size(), 2u);
  EXPECT_EQ(loops[0].num_ys(), 1) << graph->str();
  EXPECT_EQ(loops[1].num_xs(), 2);
  const auto nodes = loops[1].body().nodes();
  EXPECT_TRUE(std::ranges::any_of(nodes, [](const auto& n) { return n->op->name == "tanh" && n->generation == 1; }))
      << graph->str();
}

TEST(TransformsStructure, AnInvariantResidualIsAConst) {
  // exp(w) does not change from step to step: computed once, not saved.
  const auto fn = [](Values v) {
    const Value init[] = {v[0]};
    return scan(
               [&](Values c, Values) {
                 return std::pair{std::vector<Value>{c[0] * exp(v[1])}, std::vector<Value>{}};
               },
               init, {}, {4, false, ""})
        .first;
  };
  const auto graph = trace(value_and_grad(fn, {0}), std::vector{f64({}), f64({})});
  const auto loops = loops_of(*graph);
  ASSERT_EQ(loops.size(), 2u);
  EXPECT_EQ(loops[0].num_ys(), 0) << graph->str();
  EXPECT_EQ(loops[1].num_xs(), 0);
}

TEST(TransformsStructure, HigherDerivativesDoNotAccumulateDeadValues) {
  const Function fn = [](Values v) { return rnn_loss(v, ""); };
  const Function second = grad([&](Values v) { return std::vector<Value>{sum(grad(fn, {2})(v)[0])}; }, {2});
  const auto graph = trace(second, rnn_types);
  EXPECT_EQ(ir::eliminate_dead(*graph), nullptr) << graph->str();
}

TEST(TransformsStructure, CheckpointSavesInputsAndRecomputesInAnotherGeneration) {
  const auto fn = [](Values v) {
    const Function layer = checkpoint([](Values x) { return std::vector<Value>{sum(exp(sin(x[0])))}; });
    return layer(v);
  };
  const auto graph = trace(grad(fn, {0}), std::vector{f64({3})});
  for (const auto& node : graph->nodes())
    EXPECT_NE(node->op->name, "sin") << "recomputed in the call, not saved: " << graph->str();
  const auto calls = std::ranges::count_if(graph->nodes(), [](const auto& n) { return ir::is(*n, ir::OpKind::Call); });
  EXPECT_EQ(calls, 1) << graph->str();
}

// sqrt has an infinite derivative at 0, and a lane that is done there must not feel it.
std::vector<Value> guarded_root(Values v) {
  const Value scale = v[1], init[] = {v[0], v[0]};
  return while_loop([](Values c) { return greater(c[0], like(c[0], 0)); },
                    [&](Values c) {
                      return std::vector<Value>{c[0] - 1.0, scale * sqrt(c[0]) + c[1] / c[0]};
                    },
                    init, 4);
}

Array values(const std::vector<double>& v) { return Array::from(v, {static_cast<std::int64_t>(v.size())}); }

TEST(TransformsStructure, AFinishedLaneDoesNotReachGradients) {
  const Function loss = [](Values v) { return std::vector<Value>{sum(vmap(guarded_root, {0, -1})(v)[1])}; };
  const Function first = grad(loss, {0, 1});
  const Function second = grad([&](Values v) { return std::vector<Value>{sum(first(v)[0]) + first(v)[1]}; }, {0, 1});
  const Array x = values({0, 1, -3, 2.5}), scale = Array::scalar(0.7);
  const std::vector<ValueType> types{x.type(), scale.type()};
  const std::vector<Array> inputs{x, scale};
  for (const Function& fn : {first, second}) {
    const auto results = ir::evaluate(*trace(fn, types), inputs);
    for (const Array& a : results)
      for (std::int64_t i = 0; i < a.size(); ++i) EXPECT_TRUE(std::isfinite(a.at(i))) << a.str();
    // The lanes that run give what they give alone.
    const Array alone = values({1, 2.5});
    const std::vector<ValueType> alone_types{alone.type(), scale.type()};
    const std::vector<Array> alone_inputs{alone, scale};
    const auto expected = ir::evaluate(*trace(fn, alone_types), alone_inputs);
    EXPECT_NEAR(results[0].at(1), expected[0].at(0), 1e-12);
    EXPECT_NEAR(results[0].at(3), expected[0].at(1), 1e-12);
    EXPECT_NEAR(results[1].at(0), expected[1].at(0), 1e-12);
  }
}

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(TransformsErrors, Misuse) {
  const auto run = [](const Function& fn, const std::vector<ValueType>& types) {
    return message_of([&] { trace(fn, types); });
  };
  EXPECT_EQ(
      run(grad([](Values v) { return std::vector<Value>{v[0]}; }, {0}), {f64({2})}),
      "[grad] the first output of the function must be an f32 or f64 scalar. Received: f64[2]. Try: reduce it, as in "
      "mean(loss).");
  EXPECT_EQ(
      run(grad([](Values v) { return std::vector<Value>{v[0]}; }, {0}), {{DType::I32, {}}}),
      "[grad] derivatives are taken with respect to f32 or f64 inputs. Received: input 0 = i32[]. Try: cast it, or "
      "leave it out of argnums.");
  EXPECT_EQ(run(vmap([](Values v) { return std::vector<Value>{v[0] + v[1]}; }, {0, 0}), {f64({2}), f64({3})}),
            "[vmap] batch axes must agree in extent. Received: 2 before, and input 1 = f64[3].");
  EXPECT_EQ(run(
                [](Values v) {
                  const Value init[] = {v[0]};
                  return scan(
                             [](Values c, Values) {
                               return std::pair{std::vector<Value>{cast(c[0], DType::F32)}, std::vector<Value>{}};
                             },
                             init, {}, {3, false, ""})
                      .first;
                },
                {f64({})}),
            "[scan] the body must give a carry of the types of the initial one, f64[]. Received: f32[]. Try: cast or "
            "reshape the initial value or the result of the body.");
  EXPECT_EQ(run(
                [](Values v) {
                  const Value init[] = {v[0]}, xs[] = {v[1], v[2]};
                  return scan(
                             [](Values c, Values) {
                               return std::pair{std::vector<Value>{c[0]}, std::vector<Value>{}};
                             },
                             init, xs)
                      .first;
                },
                {f64({}), f64({3}), f64({4})}),
            "[scan] xs must agree in the extent of axis 0 and with the length 3. Received: f64[3], f64[4].");
}

}  // namespace
}  // namespace hotloop
