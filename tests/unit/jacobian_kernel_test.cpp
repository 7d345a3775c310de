// What a Jacobian must come out as: one kernel, no more passes than a block has columns (or rows), no product with a unit matrix,
// results written once, and little memory besides them.
#include <gtest/gtest.h>

#include "compiled.h"
#include "hotloop/hotloop.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

Value identity(Value x) { return x; }

struct Net {
  std::string name;
  std::vector<std::int64_t> widths;
  Value (*activation)(Value);
  std::int64_t batch = 100;
};
void PrintTo(const Net& net, std::ostream* out) { *out << net.name; }

std::vector<Value> apply(const Net& net, Values v) {
  Value h = v[0];
  for (std::size_t k = 1; k < v.size(); k += 2) {
    h = matmul(h, v[k]) + v[k + 1];
    if (k + 2 < v.size()) h = net.activation(h);
  }
  return {h};
}

std::vector<ValueType> types_of(const Net& net) {
  std::vector<ValueType> types{{DType::F32, {net.batch, net.widths[0]}}};
  for (std::size_t k = 0; k + 1 < net.widths.size(); ++k) {
    types.push_back({DType::F32, {net.widths[k], net.widths[k + 1]}});
    types.push_back({DType::F32, {net.widths[k + 1]}});
  }
  return types;
}

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

kernel::Program program_of(const Graph& graph) {
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  return schedule(*passes::optimize(graph, {}), options);
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
          multiply_adds += times * (dot->m.is_static() ? dot->m.bound : 1) * dot->n.bound * k;
        }
      }
      if (const auto* map = std::get_if<kernel::Map>(&stmt.node)) maps.push_back(map);
      if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) walk(loop->body, times * loop->trip.bound);
      if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) {
        ++grids;
        walk(grid->body, times);
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

// At most twice what is returned and 64 MB, by the memory plan: arena and one worker.
TEST(JacobianMemory, IsAtMostTwiceTheResultAnd64Megabytes) {
  const auto lstm = [](Values v) {
    const nn::LSTM layer(4, 16);
    Tree<Value> params = Tree<Value>::from_names(
        {{"weight_ih_l0", v[1]}, {"weight_hh_l0", v[2]}, {"bias_ih_l0", v[3]}, {"bias_hh_l0", v[4]}});
    nn::Context context;
    return std::vector{take(layer.apply(params, v[0], context), 1, -1)};
  };
  struct Case {
    std::string name;
    Function fn;
    std::vector<ValueType> types;
    bool dense;
  };
  const auto seed = [&](std::int64_t batch) {
    Net net = nets()[0];
    net.batch = batch;
    return net;
  };
  const auto net_case = [&](const std::string& name, const Net& net, bool dense) {
    return Case{name, [net](Values v) { return apply(net, v); }, types_of(net), dense};
  };
  const auto f32 = [](Shape shape) { return ValueType{DType::F32, shape}; };
  const std::vector<Case> cases{
      net_case("blocks of 100", seed(100), false),
      net_case("blocks of 100,000", seed(100000), false),
      net_case("dense of 100", seed(100), true),
      net_case("dense of 1000", seed(1000), true),
      net_case("autoencoder", {"", {200, 10, 200}, tanh, 1000}, false),
      {"lstm", lstm, {f32({64, 30, 4}), f32({64, 4}), f32({64, 16}), f32({64}), f32({64})}, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto graph = trace(
        [&](Values v) {
          const Jacobian j = jacobian(c.fn)(v);
          return std::vector{c.dense ? j.dense() : j.blocks()};
        },
        c.types);
    const kernel::Program program = program_of(*graph);
    const ValueType result = graph->output_types()[0];
    const std::int64_t result_bytes = result.shape.size() * 4;
    EXPECT_LE(program.shared_bytes + program.worker_bytes, result_bytes + 64'000'000)
        << "returned: " << result_bytes << "\n"
        << kernel::print(program).substr(0, 3000);
  }
}

}  // namespace
}  // namespace hotloop
