// What a Jacobian must come out as: one kernel, no more passes than a block has columns (or rows), no product with a unit matrix,
// results written once, and little memory besides them.
#include <algorithm>
#include <cmath>

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
  EXPECT_EQ(tile_rows(120), 24);  // what fits beside 115 kB of sums
  EXPECT_EQ(tile_rows(600), 48);
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
struct MemoryCase {
  std::string name;
  Function fn;  // gives the derivatives
  std::vector<ValueType> types;
};
void PrintTo(const MemoryCase& c, std::ostream* out) { *out << c.name; }

std::vector<Value> last_of_lstm(Values v) {  // x (B, T, I), weight_ih, weight_hh, bias_ih, bias_hh
  const nn::LSTM layer(v[0].shape()[2], v[2].shape()[1]);
  const Tree<Value> params = Tree<Value>::from_names(
      {{"weight_ih_l0", v[1]}, {"weight_hh_l0", v[2]}, {"bias_ih_l0", v[3]}, {"bias_hh_l0", v[4]}});
  nn::Context context;
  return {take(layer.apply(params, v[0], context), 1, -1)};
}

std::vector<MemoryCase> memory_cases() {
  enum Form { Blocks, Dense, Sparse };
  const auto form_of = [](const Function& fn, Form form) {
    return Function([fn, form](Values v) {
      const Jacobian j = jacobian(fn)(v);
      return std::vector{form == Blocks ? j.blocks() : form == Dense ? j.dense() : j.sparse()};
    });
  };
  const auto net_case = [&](const std::string& name, Net net, std::int64_t batch, Form form) {
    net.batch = batch;
    return MemoryCase{name, form_of([net](Values v) { return apply(net, v); }, form), types_of(net)};
  };
  const auto f32 = [](Shape shape) { return ValueType{DType::F32, shape}; };
  const auto lstm_types = [&](std::int64_t batch, std::int64_t steps, std::int64_t inputs, std::int64_t hidden) {
    return std::vector{f32({batch, steps, inputs}), f32({4 * hidden, inputs}), f32({4 * hidden, hidden}),
                       f32({4 * hidden}), f32({4 * hidden})};
  };
  const Function stencil = [](Values v) {  // a band of three in each row of a batch
    const Value u = v[0], zero = like(u, 0);
    const std::int64_t n = u.shape()[1];
    return std::vector{u * u + pad(narrow(u, 1, 1, n - 1), zero, {0, 0}, {0, 1}) +
                       pad(narrow(u, 1, 0, n - 1), zero, {0, 1}, {0, 0})};
  };
  // theta (P) of 8-46-46-1, x (N, 8)
  const Function loss = [](Values v) {
    Value h = v[1];
    std::int64_t at = 0;
    const std::int64_t widths[] = {8, 46, 46, 1};
    for (int l = 0; l < 3; ++l) {
      h = matmul(h, reshape(narrow(v[0], 0, at, widths[l] * widths[l + 1]), {widths[l], widths[l + 1]}));
      at += widths[l] * widths[l + 1];
      if (l < 2) h = tanh(h);
    }
    return std::vector{mean(square(h))};
  };
  const Function chain = [](Values v) {  // tridiagonal Hessian, a row of a batch each
    const std::int64_t n = v[0].shape()[1];
    return std::vector{sum(square(sin(narrow(v[0], 1, 1, n - 1)) - square(narrow(v[0], 1, 0, n - 1))))};
  };
  const Function last_sum = [](Values v) {
    std::vector<Value> row(v.begin(), v.end());
    row[0] = expand_dims(v[0], 0);
    return std::vector{sum(square(last_of_lstm(row)[0]))};
  };
  const Net seed = nets()[0];
  return {
      net_case("blocks_of_100", seed, 100, Blocks),
      net_case("blocks_of_100000", seed, 100000, Blocks),
      net_case("dense_of_100", seed, 100, Dense),
      net_case("dense_of_1000", seed, 1000, Dense),
      net_case("reverse", nets()[7], 50000, Blocks),
      net_case("autoencoder", {"", {200, 10, 200}, tanh}, 1000, Blocks),
      {"sparse_stencils", form_of(stencil, Sparse), {f32({20000, 64})}},
      {"blocks_of_stencils", form_of(stencil, Blocks), {f32({5000, 64})}},
      {"lstm", form_of(last_of_lstm, Blocks), lstm_types(64, 30, 4, 16)},
      {"lstm_per_sample", per_sample_grad(last_sum, {1, 2, 3, 4}, {0, -1, -1, -1, -1}), lstm_types(1000, 60, 12, 48)},
      {"hessian", hessian(loss), {f32({2530}), f32({5000, 8})}},
      {"sparse_hessian", [=](Values v) { return std::vector{sparse_hessian(chain)(v).sparse()}; }, {f32({20000, 32})}},
      {"hessian_diagonal", hessian_diagonal(chain), {f32({200000, 32})}},
  };
}

class JacobianMemory : public ::testing::TestWithParam<MemoryCase> {};

TEST_P(JacobianMemory, IsAtMostTwiceTheResultAnd64Megabytes) {
  const auto graph = trace(GetParam().fn, GetParam().types);
  const kernel::Program program = program_of(*graph);
  std::int64_t returned = 0;
  for (const ValueType& type : graph->output_types())
    returned += type.shape.size() * static_cast<std::int64_t>(size_of(type.dtype));
  EXPECT_LE(program.shared_bytes + program.worker_bytes, returned + 64'000'000)
      << "returned: " << returned << "\n"
      << kernel::print(program).substr(0, 3000);
}

INSTANTIATE_TEST_SUITE_P(All, JacobianMemory, ::testing::ValuesIn(memory_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hotloop
