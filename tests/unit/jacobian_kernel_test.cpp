// What a Jacobian must come out as: one kernel, no more passes than a block has columns (or rows), no product with a unit matrix,
// results written once, and little memory besides them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "arrays.h"
#include "compiled.h"
#include "hotloop/hotloop.h"
#include "perceptron_jacobians.h"

namespace hotloop {
namespace {

Value identity(Value x) { return x; }

std::vector<Net> nets() {
  return {{"seed", {1, 20, 20, 400}, tanh},
          {"wide", {1, 256, 300}, tanh},
          {"deep", {1, 16, 16, 16, 16, 16, 64}, tanh},
          {"sigmoid", {2, 32, 32, 10}, sigmoid},
          {"gelu", {1, 24, 100}, gelu},
          {"softplus", {3, 64, 5}, softplus},
          {"relu", {4, 16, 16, 8}, relu},
          {"reverse", {8, 16, 16, 3}, tanh},
          {"scalar_output", {6, 32, 32, 1}, tanh},
          {"linear", {1, 20, 40}, identity}};
}

struct Count {
  int grids = 0, dots = 0;
  std::int64_t multiply_adds = 0;  // of dots, for one row of the batch
  std::vector<const kernel::Map*> maps;

  void walk(const kernel::Block& block, std::int64_t times = 1) {
    for (const kernel::Stmt& stmt : block) {
      if (const auto* dot = std::get_if<kernel::Dot>(&stmt.node)) {
        ++dots;
        for (const kernel::DotSegment& s : dot->segments) {
          std::int64_t k = 1;
          for (const kernel::KDim& d : s.k) k *= d.extent.bound;
          multiply_adds += times * dot->m.bound * dot->n.bound * k;
        }
      }
      if (const auto* map = std::get_if<kernel::Map>(&stmt.node)) maps.push_back(map);
      if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) walk(loop->body, times * loop->trip.bound);
      if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) {
        ++grids;
        const std::int64_t before = std::exchange(multiply_adds, 0);
        walk(grid->body, times);
        multiply_adds = before + multiply_adds / grid->tile_rows;
      }
      if (const auto* single = std::get_if<kernel::Single>(&stmt.node)) walk(single->body, times);
    }
  }
};

class JacobianKernels : public ::testing::TestWithParam<Net> {};

TEST_P(JacobianKernels, OneGridWithThePassesOfOneBlock) {
  const Net& net = GetParam();
  std::shared_ptr<const JacobianStructure> structure;
  const auto graph = trace(
      [&](Values v) {
        const Jacobian j = jacobian([&](Values x) { return apply(net, x); })(v);
        structure = j.shared_structure();
        return std::vector{j.blocks()};
      },
      types_of(net));
  const std::int64_t inputs = net.widths.front(), outputs = net.widths.back();
  EXPECT_EQ(structure->paired, (std::vector<std::pair<int, int>>{{0, 0}}));
  EXPECT_EQ(structure->forward_passes + structure->reverse_passes, std::min(inputs, outputs));
  const kernel::Program program = program_of(*graph);
  SCOPED_TRACE(kernel::print(program));
  Count count;
  count.walk(program.body);
  EXPECT_EQ(count.grids, 1);
  // The primal needs all layers but the last, a tangent all but the first, whose weights it is; a cotangent all but the last.
  const bool forward = structure->forward_passes > 0;
  std::int64_t expected = 0;
  for (std::size_t l = 0; l + 1 < net.widths.size(); ++l) {
    const std::int64_t layer = net.widths[l] * net.widths[l + 1];
    const bool is_first = l == 0, is_last = l + 2 == net.widths.size();
    if (!is_last && net.activation != &identity) expected += layer;
    if (forward ? !is_first : !is_last) expected += layer * std::min(inputs, outputs);
  }
  if (net.activation != &identity) {
    EXPECT_EQ(count.multiply_adds, expected);
  }
}

TEST_P(JacobianKernels, OneLaunchAndTheResultOfTheOracle) {
  const Net& net = GetParam();
  const auto graph =
      trace([&](Values v) { return std::vector{jacobian([&](Values x) { return apply(net, x); })(v).dense()}; },
            types_of({net.name, net.widths, net.activation, 13}));
  std::vector<Array> inputs;
  double angle = 0.3;
  for (const ValueType& t : graph->input_types()) {
    Array a(t.dtype, t.shape);
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, std::sin(angle += 0.7));
    inputs.push_back(a);
  }
  const Executable run = compile(graph);
  KernelHistory::start();
  const Array got = run(inputs)[0];
  EXPECT_EQ(KernelHistory::stop().size(), 1u);
  const Array wanted = ir::evaluate(*graph, inputs)[0];
  for (std::int64_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got.at(i), wanted.at(i), 2e-5 * (1 + std::abs(wanted.at(i))));
}

INSTANTIATE_TEST_SUITE_P(All, JacobianKernels, ::testing::ValuesIn(nets()),
                         [](const auto& info) { return info.param.name; });

TEST(JacobianKernel, TheSeedWritesItsBlocksStraightToTheResult) {
  const Net seed = nets()[0];
  const auto graph =
      trace([&](Values v) { return std::vector{jacobian([&](Values x) { return apply(seed, x); })(v).blocks()}; },
            types_of(seed));
  const kernel::Program program = program_of(*graph);
  Count count;
  count.walk(program.body);
  EXPECT_EQ(count.dots, 4) << kernel::print(program);  // two layers of the primal, two of the tangent
  EXPECT_EQ(count.maps.size(), 2u) << "a hidden layer's tanh and its tangent are one map; the result is not copied";
}

// Residuals that share the parameters: the Jacobian is one backward pass a row, as per_sample_grad() takes it.
TEST(JacobianKernel, OfResidualsIsOnePassForEachRow) {
  const auto mlp = [](Value theta, Value x) {
    const Value h = tanh(matmul(x, reshape(narrow(theta, 0, 0, 60), {6, 10})));
    return matmul(h, reshape(narrow(theta, 0, 60, 10), {10, 1}));
  };
  const Function residuals = [&](Values v) { return std::vector{reshape(mlp(v[0], v[1]), {300}) - v[2]}; };
  const Function one = [&](Values v) { return std::vector{sum(mlp(v[0], expand_dims(v[1], 0))) - v[2]}; };
  const std::vector<ValueType> types{{DType::F32, {70}}, {DType::F32, {300, 6}}, {DType::F32, {300}}};
  const auto multiply_adds = [&](const Function& fn) {
    Count count;
    count.walk(program_of(*trace(fn, types)).body);
    EXPECT_EQ(count.grids, 1);
    return count.multiply_adds;
  };
  const Function with_structure = [&](Values v) {
    const Jacobian j = jacobian(residuals)(v);
    EXPECT_EQ(j.structure().reverse_passes, 1);
    EXPECT_EQ(j.structure().forward_passes, 0);
    EXPECT_EQ(j.blocks().shape(), (Shape{300, 70}));
    return std::vector{j.blocks()};
  };
  EXPECT_LE(multiply_adds(with_structure), multiply_adds(per_sample_grad(one, {0}, {-1, 0, 0})));
}

// Means within a row, which divide by the extent of another axis than the rows'; a mean over the rows makes them depend on each other.
TEST(JacobianKernel, OfRowsWithMeansWithinThemIsOnePassForEachRow) {
  const auto scale = Array::full(DType::F64, {10}, 1.5), shift = Array::zeros(DType::F64, {10});
  const std::vector<std::pair<std::string, std::function<Value(Value)>>> ends = {
      {"mean", [](Value h) { return mean(square(h), {1}); }},
      {"variance", [](Value h) { return variance(h, {1}); }},
      {"layer_norm", [&](Value h) { return take(nn::layer_norm(h, constant(scale), constant(shift)), 1, 3); }},
      {"over rows", [](Value h) { return mean(square(h), {1}) - mean(mean(h, {1}), {0}); }}};
  const std::vector<Array> in = {testing::normal_array({6, 10}, DType::F64, 1),
                                 testing::normal_array({40, 6}, DType::F64, 2)};
  for (const auto& [name, end] : ends) {
    const auto residuals = [&end = end](Value weight, Value x) { return end(tanh(matmul(x, weight))); };
    const auto traced = [&](const std::function<Value(std::span<const Value>)>& f) {
      return jit([&](std::span<const Value> v) { return std::vector{f(v)}; })(in)[0];
    };
    std::int64_t passes = 0;
    const Array got = traced([&](std::span<const Value> v) {
      const Jacobian j = jacobian([&](Values u) { return std::vector{residuals(u[0], u[1])}; })(v);
      passes = j.structure().reverse_passes + j.structure().forward_passes;
      return j.dense();
    });
    EXPECT_EQ(passes == 1, name != "over rows") << name << " " << passes;
    const Array want = traced([&](std::span<const Value> v) {
      std::vector<Value> rows;
      for (int i = 0; i < 40; ++i)
        rows.push_back(grad([&](Values u) { return std::vector{take(residuals(u[0], u[1]), 0, i)}; }, {0})(v)[0]);
      return stack(rows, 0);
    });
    ASSERT_EQ(got.size(), want.size()) << name;
    for (std::int64_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got.at(i), want.at(i), 1e-13) << name << " " << i;
  }
}

// The same of an ensemble on shared data: a block for each member, and one pass for all rows of all members.
TEST(JacobianKernel, OfAnEnsemblesResidualsIsOnePassForEachRow) {
  const Function member = [](Values v) {
    const Value h = tanh(matmul(v[1], reshape(narrow(v[0], 0, 0, 60), {6, 10})));
    return std::vector{reshape(matmul(h, reshape(narrow(v[0], 0, 60, 10), {10, 1})), {300}) - v[2]};
  };
  const std::vector<ValueType> types{{DType::F32, {4, 70}}, {DType::F32, {300, 6}}, {DType::F32, {300}}};
  const Function blocks = [&](Values v) {
    const Jacobian j = jacobian(vmap(member, {0, -1, -1}))(v);
    EXPECT_EQ(j.structure().reverse_passes, 1);
    EXPECT_EQ(j.structure().forward_passes, 0);
    EXPECT_EQ(j.blocks().shape(), (Shape{4, 300, 70}));
    return std::vector{j.blocks()};
  };
  const Function each = vmap([&](Values v) { return std::vector{jacobian(member)(v).blocks()}; }, {0, -1, -1});
  const auto multiply_adds = [&](const Function& fn) {
    Count count;
    count.walk(program_of(*trace(fn, types)).body);
    return count.multiply_adds;
  };
  EXPECT_LE(multiply_adds(blocks), multiply_adds(each));
}

// J^T J of many parameters does not stay in the cache: a tile brings it more than a dozen rows each time.
TEST(JacobianKernel, NormalEquationsOfManyParametersTakeTallTiles) {
  const auto tile_rows = [](std::int64_t parameters) {
    const Function fn = [](Values v) {
      const Value j = tanh(v[0]);
      return std::vector{dot(j, j, {{0}, {0}, {}, {}})};
    };
    const kernel::Program program = program_of(*trace(fn, std::vector{ValueType{DType::F64, {2000, parameters}}}));
    for (const kernel::Stmt& stmt : program.body)
      if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) return grid->tile_rows;
    return std::int64_t{0};
  };
  EXPECT_LE(tile_rows(120), 32);  // what fits beside 115 kB of sums
  EXPECT_GE(tile_rows(600), 48);
}

// LSTMs with weights of their own each, on one series: the products with a member's weights are one batched dot, and one kernel runs
// members, steps and all.
TEST(Ensemble, OfDifferentlyWeightedLstmsIsOneKernel) {
  constexpr std::int64_t members = 16, batch = 4, steps = 9, hidden = 8;
  const nn::LSTM lstm(3, hidden);
  const Tree<Array> params = lstm.init(0, DType::F64);
  const std::size_t n = params.num_leaves();
  const Function one = [&](Values v) { return std::vector{lstm.apply(params.unflatten(v.first(n)), v[n])}; };
  std::vector<int> axes(n, 0);
  axes.push_back(-1);  // all see the same series
  std::vector<Array> inputs;
  for (const Array& leaf : params.flatten())
    inputs.push_back(nn::uniform(inputs.size(), leaf.shape().with_inserted(0, members), DType::F64, -0.5, 0.5));
  inputs.push_back(nn::uniform(9, {batch, steps, 3}, DType::F64, -1, 1));
  const Jit ensemble = jit(vmap(one, axes)), alone = jit(one);
  ensemble(inputs);
  KernelHistory::start();
  const Array all = ensemble(inputs)[0];
  EXPECT_EQ(KernelHistory::stop().size(), 1u);
  std::vector<ValueType> types;
  for (const Array& a : inputs) types.push_back(a.type());
  const std::string graph = ensemble.executable(types).graph_text();
  EXPECT_EQ(graph.find(" loop("), graph.rfind(" loop(")) << "one loop over time for all members:\n" << graph;
  for (const std::int64_t m : {std::int64_t{0}, members - 1}) {
    std::vector<Array> own;
    for (std::size_t leaf = 0; leaf < n; ++leaf) {
      Array a(DType::F64, params.flatten()[leaf].shape());
      for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, inputs[leaf].at(m * a.size() + i));
      own.push_back(a);
    }
    own.push_back(inputs.back());
    const Array y = alone(own)[0];
    for (std::int64_t i = 0; i < y.size(); ++i) ASSERT_NEAR(all.at(m * y.size() + i), y.at(i), 1e-13);
  }
}

}  // namespace
}  // namespace hotloop
