// Derivative rules of calls are traced where a derivative is taken, and nowhere else: their nodes would be most of a program's.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "hotloop/hotloop.h"
#include "hotloop/linalg.h"
#include "hotloop/minimize.h"
#include "ir/op_def.h"

namespace hotloop {
namespace {

struct Rules {
  int all = 0, traced = 0;
};

Rules rules_of(const Graph& graph) {
  Rules rules;
  const auto add = [&](const Graph& inner) {
    const Rules more = rules_of(inner);
    rules.all += more.all;
    rules.traced += more.traced;
  };
  for (const auto& node : graph.nodes()) {
    for (const auto& region : node->regions) add(*region);
    if (!node->attrs.has(ir::jvp_rule_attr)) continue;
    const auto& rule = *node->attrs.get<std::shared_ptr<const LazyGraph>>(ir::jvp_rule_attr);
    ++rules.all;
    if (!rule.is_traced()) continue;
    ++rules.traced;
    add(*rule.get());
  }
  return rules;
}

std::vector<Value> square_counted(Value x, int& num_traces) {
  const auto body = trace([](std::span<const Value> v) { return std::vector<Value>{v[0] * v[0]}; },
                          std::vector<ValueType>{x.type()}, "square");
  const auto rule = [&num_traces](std::span<const Value> v) {
    ++num_traces;
    return std::vector<Value>{v[0] * v[0], 3.0 * v[0] * v[1]};  // not the body's own, to tell them apart
  };
  return call_with_rule(body, std::vector<Value>{x}, "square", rule);
}

double first(const Array& a) { return a.at(0); }

TEST(LazyRules, AreTracedOnceWhereADerivativeIsTaken) {
  int num_traces = 0;
  const ValueType number{DType::F64, {}}, numbers{DType::F64, {5}};
  const auto fn = [&](std::span<const Value> v) { return square_counted(v[0], num_traces); };
  const auto graph = trace(fn, std::vector{number});
  const auto again = [&](std::span<const Value> v) { return inline_graph(*graph, v); };
  const Array two = Array::from(std::vector<double>{2}, {}),
              five = Array::from(std::vector<double>{1, 2, 3, 4, 5}, {5});
  EXPECT_EQ(first(jit(again)({two})[0]), 4);
  const auto batched = trace(vmap(again, {0}), std::vector{numbers});
  EXPECT_EQ(compile(batched)(std::vector<Array>{five})[0].at(4), 25);
  EXPECT_EQ(num_traces, 0);
  EXPECT_EQ(first(jit(value_and_grad(again, {0}))({two})[1]), 6);
  EXPECT_EQ(first(jit(value_and_grad(again, {0}))({Array::from(std::vector<double>{3}, {})})[1]), 9);
  const auto sums = [&](std::span<const Value> v) { return std::vector<Value>{sum(inline_graph(*batched, v)[0])}; };
  EXPECT_EQ(jit(value_and_grad(sums, {0}))({five})[1].at(3), 12);
  EXPECT_EQ(num_traces, 1);
}

TEST(LazyRules, CostAProgramWithoutDerivativesNothing) {
  const ValueType matrix{DType::F64, {8, 8}}, vector{DType::F64, {8}}, matrices{DType::F64, {7, 8, 8}},
      vectors{DType::F64, {7, 8}};
  const auto solve = [](std::span<const Value> v) { return std::vector<Value>{linalg::solve(v[0], v[1])}; };
  const auto search = [](std::span<const Value> v) {
    const auto distance = [&](const Tree<Value>& p) { return sum(square(matmul(v[0], p.leaf()) - v[1])); };
    return std::vector<Value>{minimize(distance, Tree<Value>(v[1])).params.leaf()};
  };
  const auto stiff = [](std::span<const Value> v) {
    ode::Options options;
    options.dt0 = 0.01;
    options.args = v[0];
    const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& a) {
      return Tree<Value>(matmul(a.leaf(), y.leaf()));
    };
    return std::vector<Value>{ode::solve(field, ode::Kvaerno5(), 0, 1, v[1], options).y1.leaf()};
  };
  for (const TracedFunction& fn : {TracedFunction(solve), TracedFunction(search), TracedFunction(stiff)}) {
    const auto one = trace(fn, std::vector{matrix, vector});
    const auto many = trace(vmap(fn, {0, 0}), std::vector{matrices, vectors});
    for (const auto& graph : {one, many}) {
      compile(graph);
      const Rules rules = rules_of(*graph);
      EXPECT_GT(rules.all, 0);
      EXPECT_EQ(rules.traced, 0);
    }
  }
}

// A rule is traced when the trace around its call is over.
TEST(LazyRules, OutliveWhatTheyWereMadeOf) {
  std::shared_ptr<const Graph> graph;
  const ValueType vector{DType::F64, {3}};
  {
    const auto fn = [](std::span<const Value> v) {
      const auto distance = [&](const Tree<Value>& p) { return sum(square(p.leaf() - v[0] * v[0])); };
      return std::vector<Value>{sum(minimize(distance, Tree<Value>(v[1])).params.leaf())};
    };
    const auto traced = trace(fn, std::vector{vector, vector});
    graph = trace([&](std::span<const Value> v) { return inline_graph(*traced, v); }, std::vector{vector, vector});
  }
  const auto fn = [&](std::span<const Value> v) { return inline_graph(*graph, v); };
  const Array at = Array::from(std::vector<double>{1, 2, 3}, {3}),
              start = Array::from(std::vector<double>{0, 0, 0}, {3});
  const Array gradient = jit(value_and_grad(fn, {0}))({at, start})[1];
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(gradient.at(i), 2.0 * (i + 1), 1e-6);
}

TEST(LazyRules, AreInTheTextOfAGraph) {
  const ValueType matrix{DType::F64, {2, 2}}, vector{DType::F64, {2}};
  const auto solve = [](std::span<const Value> v) { return std::vector<Value>{linalg::solve(v[0], v[1])}; };
  const auto graph = trace(solve, std::vector{matrix, vector});
  EXPECT_EQ(ir::print_without_rules(*graph).find("rule {"), std::string::npos);
  EXPECT_EQ(rules_of(*graph).traced, 0);
  const std::string text = graph->str();
  EXPECT_NE(text.find("rule {"), std::string::npos);
  EXPECT_EQ(ir::parse(text)->str(), text);
}

}  // namespace
}  // namespace hotloop
