// Loops that share work become one: derivatives by several arguments take their steps once; loops that differ stay apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "hotloop/jacobian.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "ode/registry.h"
#include "op_checks.h"
#include "passes/pipeline.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

int num_loops(const std::shared_ptr<const Graph>& graph) {
  const auto best = passes::optimize(*graph, {});
  return static_cast<int>(
      std::ranges::count_if(best->nodes(), [](const auto& n) { return n->op->kind == ir::OpKind::Loop; }));
}

// The results are those of the graph as it was traced, and there are so many loops.
void expect_loops(int count, const TracedFunction& fn, const std::vector<Array>& arguments) {
  std::vector<ValueType> types;
  for (const Array& a : arguments) types.push_back(a.type());
  const auto graph = trace(fn, types);
  EXPECT_EQ(num_loops(graph), count);
  const auto got = compile(graph)(arguments), wanted = ir::evaluate(*graph, arguments);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(ir::close(got[i], wanted[i], 1e-12)) << "result " << i;
}

Array numbers(const Shape& shape, double first) {
  Array a(DType::F64, shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, std::sin(first + 1.7 * static_cast<double>(i)));
  return a;
}

// Steps h = tanh(w h) * keep until its first number is below a limit.
Value halving(Value w, Value h0, double keep, double limit, std::int64_t length = 30) {
  const auto body = [&](Values c) { return std::vector<Value>{tanh(matmul(c[1], c[0])) * keep, c[1]}; };
  const auto more = [&](Values c) { return greater(abs(take(c[0], 0, 0)), constant(limit, DType::F64)); };
  return while_loop(more, body, std::vector<Value>{h0, w}, length)[0];
}

const std::vector<Array> point = {numbers({3, 3}, 0.3), numbers({3}, 1)};

TEST(MergeLoops, SolutionAndSensitivitiesTakeTheirStepsOnce) {
  const auto fn = [](Values in) {
    const auto solve = [&](Values p) {
      ode::Options options;
      options.controller = ode::PID(1e-4, 1e-4);
      options.args = Tree<Value>(p[0]);
      const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& w) {
        return Tree<Value>(tanh(matmul(w.leaf(), y.leaf())));
      };
      return std::vector<Value>{ode::solve(field, ode::Tsit5(), 0, 1, p[1], options).y1.leaf()};
    };
    std::vector<Value> out = solve(in.first(2));
    for (const Value& v : jacfwd(solve, {0, 1})(in.first(2))) out.push_back(v);
    return out;
  };
  expect_loops(1, fn, point);
}

TEST(MergeLoops, AlsoOfLoopsThatCountTheirSteps) {
  const auto fn = [](Values in) {
    const auto last = [&](Values p) {
      const auto step = [&](Values c, Values) {
        const Value h = tanh(matmul(p[0], c[0]));
        return std::pair(std::vector<Value>{h}, std::vector<Value>{h});
      };
      return std::vector<Value>{scan(step, std::vector<Value>{p[1]}, {}, {.length = 5}).second[0]};
    };
    std::vector<Value> out = last(in.first(2));
    for (int i = 0; i < 2; ++i)
      for (const Value& v : jacfwd(last, {i})(in.first(2))) out.push_back(v);
    return out;
  };
  expect_loops(1, fn, point);
}

TEST(MergeLoops, LoopsThatEndOtherwiseStayApart) {
  expect_loops(
      2,
      [](Values in) {
        return std::vector<Value>{halving(in[0], in[1], 0.9, 0.1), halving(in[0], in[1], 0.9, 0.01)};
      },
      point);
  expect_loops(
      2,
      [](Values in) {
        return std::vector<Value>{halving(in[0], in[1], 0.9, 0.1), halving(in[0], in[1], 0.8, 0.1)};
      },
      point);
  expect_loops(
      2,
      [](Values in) {
        return std::vector<Value>{halving(in[0], in[1], 0.9, 0.1, 30), halving(in[0], in[1], 0.9, 0.1, 3)};
      },
      point);
}

// Those that share nothing are known without being written into one.
TEST(MergeLoops, ManySideBySideTakeNoTime) {
  const auto fn = [](Values in) {
    std::vector<Value> out;
    for (int k = 0; k < 400; ++k) out.push_back(halving(in[0], in[1], 0.5 + 0.001 * k, 0.1));
    return out;
  };
  const auto graph = trace(fn, std::vector<ValueType>{point[0].type(), point[1].type()});
  const auto& merge = *std::ranges::find(passes::all_passes(), "merge_loops", &passes::Pass::name);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(merge.run(*graph, {}), nullptr);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(MergeLoops, OneThatNeedsTheOtherStaysBehindIt) {
  expect_loops(
      2, [](Values in) { return std::vector<Value>{halving(in[0], halving(in[0], in[1], 0.9, 0.1), 0.9, 0.1)}; },
      point);
}

}  // namespace
}  // namespace hotloop
