// Passes keep the meaning of programs: random graphs, random loops, and the training steps of recurrent cells, with all
// passes, with each optional one off, and with all of them off. And they find what they are there to find.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "hotloop/transforms.h"
#include "ir/rewrite.h"
#include "passes/pipeline.h"
#include "property/cells.h"

namespace hotloop {
namespace {

using ir::OpKind;

Array random_array(std::mt19937_64& rng, const ValueType& type, double scale = 1) {
  std::normal_distribution<double> normal(0, scale);
  Array a(type.dtype, type.shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, normal(rng));
  return a;
}

std::vector<Array> random_inputs(std::mt19937_64& rng, const Graph& graph, double scale = 0.5) {
  std::vector<Array> arrays;
  for (const ValueType& t : graph.input_types()) arrays.push_back(random_array(rng, t, scale));
  return arrays;
}

// Within `tolerance` of the largest element of each result.
void expect_close(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < want.size(); ++k) {
    ASSERT_EQ(got[k].type(), want[k].type());
    double largest = 0, worst = 0;
    for (std::int64_t i = 0; i < want[k].size(); ++i) {
      if (std::isnan(want[k].at(i)) && std::isnan(got[k].at(i))) continue;
      largest = std::max(largest, std::abs(want[k].at(i)));
      worst = std::max(worst, std::abs(want[k].at(i) - got[k].at(i)));
    }
    EXPECT_LE(worst, tolerance * std::max(largest, 1e-3)) << "output " << k;
  }
}

std::vector<std::vector<std::string>> pass_choices() {
  std::vector<std::vector<std::string>> choices = {{}, {"all"}};
  for (const passes::Pass& pass : passes::all_passes())
    if (pass.optional) choices.push_back({pass.name});
  return choices;
}

void expect_same_meaning(const Graph& graph, const std::vector<Array>& inputs, double tolerance = 1e-12) {
  const std::vector<Array> want = ir::evaluate(graph, inputs);
  for (const auto& disabled : pass_choices()) {
    SCOPED_TRACE(disabled.empty() ? "all passes" : "without " + disabled[0]);
    passes::PassOptions options;
    options.disabled = disabled;
    const auto optimized = passes::optimize(graph, options);
    expect_close(ir::evaluate(*optimized, inputs), want, tolerance);
    if (::testing::Test::HasFailure()) {
      std::printf("%s\n---- became\n%s\n", ir::print(graph).c_str(), ir::print(*optimized).c_str());
      return;
    }
  }
}

// ---- random graphs ------------------------------------------------------------------------------------------------
class Random {
 public:
  explicit Random(std::uint64_t seed) : rng_(seed) {}
  std::mt19937_64& rng() { return rng_; }
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng_); }

  // Appends `count` random ops on the values; all are f64.
  void grow(std::vector<Value>& values, int count) {
    for (int i = 0; i < count; ++i)
      if (const Value v = step(values); v.defined() && v.shape().size() <= 200 && v.rank() <= 3) values.push_back(v);
  }
  // A value of the wanted shape made of v: summed, then repeated.
  static Value shaped(Value v, const Shape& shape) {
    return v.shape() == shape ? v : broadcast_to(tanh(sum(v)), shape);
  }

 private:
  Value pick(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }
  Value alike(const std::vector<Value>& values, Value v) {
    std::vector<Value> same;
    for (const Value& w : values)
      if (w.shape() == v.shape()) same.push_back(w);
    return pick(same);
  }

  Value step(const std::vector<Value>& values) {
    const Value x = pick(values);
    const int axis = x.rank() > 0 ? below(x.rank()) : -1;
    switch (below(20)) {
      case 0: return tanh(x);
      case 1: return neg(x);
      case 2: return sigmoid(x);
      case 3: return add(x, alike(values, x));
      case 4: return mul(x, alike(values, x));
      case 5: return sub(x, alike(values, x));
      case 6: return add(add(x, alike(values, x)), alike(values, x));
      case 7: return x * constant_number();
      case 8: return x + constant_number();
      case 9: return axis < 0 ? Value{} : reduce_sum(x, {axis});
      case 10: {
        std::vector<std::int64_t> permutation;
        for (int i = 0; i < x.rank(); ++i) permutation.insert(permutation.begin() + below(i + 1), i);
        return transpose(x, permutation);
      }
      case 11:
        return axis < 0 || x.shape()[axis] < 2
                   ? Value{}
                   : narrow(x, axis, below(2), 1 + below(static_cast<int>(x.shape()[axis]) - 1));
      case 12: {
        if (axis < 0) return {};
        std::vector<std::int64_t> low(static_cast<std::size_t>(x.rank())), high(low);
        low[static_cast<std::size_t>(axis)] = below(3);
        high[static_cast<std::size_t>(axis)] = below(3);
        return pad(x, like(x, 0), low, high);
      }
      case 13: {
        if (axis < 0) return {};
        const Value parts[] = {x, alike(values, x)};
        return concat(parts, axis);
      }
      case 14: return reshape(x, {x.shape().size()});
      case 15: return x.rank() < 3 ? broadcast_to(x, x.shape().with_inserted(0, 1 + below(3))) : Value{};
      case 16:
      case 17: {
        if (x.rank() != 2) return {};
        for (const Value& y : values)
          if (y.rank() == 2 && y.shape()[0] == x.shape()[1]) return tanh(dot(x, y, {{1}, {0}, {}, {}}));
        return dot(x, x, {{0}, {0}, {}, {}});
      }
      case 18: return select(greater(x, alike(values, x)), x, alike(values, x));
      default: {  // a split, changed and put together again
        if (axis < 0 || x.shape()[axis] < 2) return {};
        const std::int64_t cut = 1 + below(static_cast<int>(x.shape()[axis]) - 1);
        const Value a = narrow(x, axis, 0, cut), b = narrow(x, axis, cut, x.shape()[axis] - cut);
        std::vector<std::int64_t> la(static_cast<std::size_t>(x.rank())), ha(la), lb(la), hb(la);
        ha[static_cast<std::size_t>(axis)] = x.shape()[axis] - cut;
        lb[static_cast<std::size_t>(axis)] = cut;
        return add(pad(tanh(a), like(x, 0), la, ha), pad(sigmoid(b), like(x, 0), lb, hb));
      }
    }
  }
  double constant_number() {
    constexpr double numbers[] = {0, 1, -1, 0.5, 3};
    return numbers[below(5)];
  }

  std::mt19937_64 rng_;
};

TEST(Passes, KeepTheMeaningOfRandomGraphs) {
  const ValueType types[] = {{DType::F64, {3, 4}}, {DType::F64, {4, 3}}, {DType::F64, {4}}, {DType::F64, {}}};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto graph = trace(
        [&](std::span<const Value> in) {
          std::vector<Value> values(in.begin(), in.end());
          random.grow(values, 40);
          return std::vector<Value>(values.end() - 5, values.end());
        },
        types);
    expect_same_meaning(*graph, random_inputs(random.rng(), *graph));
    if (HasFailure()) return;
  }
}

// A scan with a random body: carries, xs and captured values mix, and one carry accumulates products.
std::vector<Value> random_scan(Random& random, std::span<const Value> in) {
  std::vector<Value> before(in.begin() + 1, in.end());
  random.grow(before, 5);
  const bool reverse = random.below(2) == 1;
  const std::vector<Value> init = {in[1], in[2], constant(0, DType::F64, {4, 4})};
  const auto [carry, ys] = scan(
      [&](std::span<const Value> state, std::span<const Value> x) {
        std::vector<Value> values = {state[0], state[1], x[0]};
        values.insert(values.end(), before.begin(), before.end());
        random.grow(values, 25);
        const Value a = Random::shaped(values[values.size() - 1], {3, 4}),
                    b = Random::shaped(values[values.size() - 2], {4, 3});
        const Value product = random.below(2) == 1 ? dot(x[0], a, {{0}, {0}, {}, {}}) : dot(b, a, {{1}, {0}, {}, {}});
        const std::vector<Value> next = {tanh(a), tanh(b), state[2] + product};
        return std::pair(next, std::vector<Value>{values[values.size() - 3], tanh(a)});
      },
      init, std::vector<Value>{in[0]}, {.length = -1, .reverse = reverse, .residuals = ""});
  std::vector<Value> outputs = carry;
  outputs.insert(outputs.end(), ys.begin(), ys.end());
  return outputs;
}

TEST(Passes, KeepTheMeaningOfRandomLoops) {
  const ValueType types[] = {{DType::F64, {4, 3, 4}}, {DType::F64, {3, 4}}, {DType::F64, {4, 3}}, {DType::F64, {4}}};
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto graph = trace([&](std::span<const Value> in) { return random_scan(random, in); }, types);
    expect_same_meaning(*graph, random_inputs(random.rng(), *graph));
    if (HasFailure()) return;
  }
}

TEST(Passes, KeepTheMeaningOfGradientsOfRandomLoops) {
  const ValueType types[] = {{DType::F64, {4, 3, 4}}, {DType::F64, {3, 4}}, {DType::F64, {4, 3}}, {DType::F64, {4}}};
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Function loss = [&](std::span<const Value> in) -> std::vector<Value> {
      Value total = constant(0, DType::F64);
      for (const Value& v : random_scan(random, in)) total = total + sum(tanh(v));
      return {total};
    };
    const auto graph = trace(value_and_grad(loss, {0, 1, 2, 3}), types);
    expect_same_meaning(*graph, random_inputs(random.rng(), *graph), 1e-11);
    if (HasFailure()) return;
  }
}

// ---- training steps of cells --------------------------------------------------------------------------------------
std::shared_ptr<Graph> training_graph(const cells::Program& p) {
  return trace(value_and_grad(p.loss, p.weights), p.inputs);
}

struct Counts {
  std::map<OpKind, int> kinds;
  int operator[](OpKind kind) const { return kinds.contains(kind) ? kinds.at(kind) : 0; }
};
Counts count(const Graph& graph) {
  Counts counts;
  for (const auto& node : graph.nodes()) ++counts.kinds[node->op->kind];
  return counts;
}
std::vector<ir::LoopView> loops_of(const Graph& graph) {
  std::vector<ir::LoopView> loops;
  for (const auto& node : graph.nodes())
    if (node->op->kind == OpKind::Loop) loops.emplace_back(*node);
  return loops;
}

class CellPasses : public ::testing::TestWithParam<int> {
 protected:
  static cells::Program program(const cells::Sizes& s = {}) {
    switch (GetParam()) {
      case 0: return cells::lstm(s);
      case 1: return cells::gru(s);
      case 3: return cells::sliced_lstm(s);
      default: return cells::layer_norm_lstm(s);
    }
  }
};

TEST_P(CellPasses, KeepTheMeaningOfTrainingSteps) {
  std::mt19937_64 rng(7);
  const auto graph = training_graph(program());
  expect_same_meaning(*graph, random_inputs(rng, *graph));
}

TEST_P(CellPasses, KeepTheMeaningOfWideInputs) {
  std::mt19937_64 rng(8);
  const auto graph = training_graph(program({.time = 3, .batch = 2, .input = 65, .hidden = 4}));
  expect_same_meaning(*graph, random_inputs(rng, *graph));
}

TEST_P(CellPasses, MergeGatesAndDeferWeightGradients) {
  const auto graph = passes::optimize(*training_graph(program()), {});
  const auto loops = loops_of(*graph);
  ASSERT_EQ(loops.size(), 2u) << graph->str();
  const ir::LoopView &forward = loops[0], &backward = loops[1];
  // One dot for x and one for h; the state's gradient is one dot for each path into h.
  EXPECT_EQ(count(forward.body())[OpKind::Dot], 2) << graph->str();
  const int num_states = GetParam() == 1 ? 1 : 2;
  // Gradients of gains and shifts, five of each, are added up element by element.
  const int num_gains = GetParam() == 2 ? 10 : 0;
  EXPECT_EQ(backward.num_carry(), num_states + num_gains) << graph->str();
  EXPECT_EQ(count(backward.body())[OpKind::Dot], 1) << graph->str();
  // The gates' gradients lie side by side once; a GRU's differ for x and h, since r scales what h contributes to n.
  EXPECT_EQ(count(backward.body())[OpKind::Concat], GetParam() == 1 ? 2 : 1) << graph->str();
  // Weight gradients: x and h against the gates' gradients, over all steps.
  EXPECT_EQ(count(*graph)[OpKind::Dot], 2) << graph->str();
}

TEST_P(CellPasses, BatchWideInputs) {
  const auto graph = passes::optimize(*training_graph(program({.time = 3, .batch = 2, .input = 64, .hidden = 4})), {});
  const auto loops = loops_of(*graph);
  ASSERT_EQ(loops.size(), 2u);
  EXPECT_EQ(count(loops[0].body())[OpKind::Dot], 1) << graph->str();
  EXPECT_EQ(count(*graph)[OpKind::Dot], 3) << graph->str();
}

// Rows that fill the registers in a step as well, and whose products of all steps would leave the second cache.
TEST(Passes, WideInputsOfManyRowsAndStepsStayInTheLoop) {
  const auto dots_in_loop = [](std::int64_t time, std::int64_t batch, std::int64_t input) {
    const auto graph =
        passes::optimize(*training_graph(cells::lstm({.time = time, .batch = batch, .input = input, .hidden = 4})), {});
    return count(loops_of(*graph).at(0).body())[OpKind::Dot];
  };
  EXPECT_EQ(dots_in_loop(512, 16, 64), 1);  // 16 rows of 16 sums in f64, 512 steps: 1 MB
  EXPECT_EQ(dots_in_loop(513, 16, 64), 2);
  EXPECT_EQ(dots_in_loop(513, 100, 64), 2);  // whatever the rows, tiles have 16 of them
  EXPECT_EQ(dots_in_loop(600, 7, 64), 1);
  EXPECT_EQ(dots_in_loop(1024, 8, 64), 1);
  EXPECT_EQ(dots_in_loop(1025, 8, 64), 2);
  EXPECT_EQ(dots_in_loop(513, 16, 256), 2);
  EXPECT_EQ(dots_in_loop(513, 16, 257), 1);
}

TEST_P(CellPasses, OptimizeAnOptimizedGraphChangesNothing) {
  const auto once = passes::optimize(*training_graph(program()), {});
  EXPECT_EQ(ir::print(*passes::optimize(*once, {})), ir::print(*once));
}

std::string cell_name(const ::testing::TestParamInfo<int>& info) {
  constexpr const char* names[] = {"lstm", "gru", "layer_norm_lstm", "sliced_lstm"};
  return names[info.param];
}
INSTANTIATE_TEST_SUITE_P(Cells, CellPasses, ::testing::Values(0, 1, 2, 3), cell_name);

TEST(Passes, SaveForTheBackwardLoopWhatCostsFewestBytes) {
  const cells::Sizes s;
  const auto graph = passes::optimize(*training_graph(cells::lstm(s)), {});
  const auto loops = loops_of(*graph);
  ASSERT_EQ(loops.size(), 2u);
  // i, f, g, o, tanh(c) and the c before; h before is read after the loop, by the weight gradients.
  std::int64_t saved = 0;
  for (int i = 0; i < loops[1].num_xs(); ++i)
    if (loops[1].xs(i).node == &loops[0].node()) saved += loops[1].xs_in(i).shape().size();
  EXPECT_EQ(saved, 6 * s.batch * s.hidden) << graph->str();
}

int num_products(const Graph& graph) {
  return static_cast<int>(std::ranges::count_if(graph.nodes(), [](const auto& node) {
    return node->op->scalar == ir::ScalarOp::Mul || node->op->scalar == ir::ScalarOp::Neg;
  }));
}

// What overflows or vanishes on the way does so in the program that was written.
TEST(Passes, FoldConstantFactorsThatReachTheEndsOfTheRangeTogether) {
  struct Case {
    std::vector<double> factors;
    int left;  // products and negations after the passes
  };
  for (const Case& c : {Case{{2, 3}, 1}, Case{{2, 3, 5}, 1}, Case{{0.5, 0.3, 0.1}, 1}, Case{{-2, 3}, 1},
                        Case{{-1, -1}, 0}, Case{{-1, 2}, 1}, Case{{0.5, -1, 0.25}, 1}, Case{{1e5, 1e-5}, 2},
                        Case{{1e-5, 1e5}, 2}, Case{{2, 0.3}, 2}, Case{{1e30, 1e30}, 2}, Case{{1e-30, 1e-30}, 2}})
    for (const DType dtype : {DType::F32, DType::F64}) {
      const bool is_f32 = dtype == DType::F32;
      const double largest = is_f32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
      const double least =
          is_f32 ? std::numeric_limits<float>::denorm_min() : std::numeric_limits<double>::denorm_min();
      std::vector<double> numbers = {0.0, 1, INFINITY, -INFINITY, NAN, largest, -largest, least};
      for (double x = largest; x >= 1e3 * least; x /= 977) numbers.push_back(x);
      const Array x = Array::from(numbers, {static_cast<std::int64_t>(numbers.size())}).cast(dtype);
      const auto graph = trace(
          [&](std::span<const Value> in) {
            Value y = in[0];
            for (const double f : c.factors) y = y * f;
            return std::vector<Value>{y};
          },
          std::vector{x.type()});
      const auto optimized = passes::optimize(*graph, {});
      EXPECT_EQ(num_products(*optimized), c.left) << c.factors[0] << " " << c.factors[1];
      const Array want = ir::evaluate(*graph, std::vector{x})[0], got = ir::evaluate(*optimized, std::vector{x})[0];
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const double w = want.at(i), g = got.at(i);
        const bool same = w == g || (std::isnan(w) && std::isnan(g));
        EXPECT_TRUE(same || std::abs(g - w) <= (is_f32 ? 3e-7 : 6e-16) * std::abs(w) + 2 * least)
            << x.at(i) << " times " << c.factors[0] << " and " << c.factors[1] << ": " << g << " for " << w;
      }
    }
}

TEST(Passes, UnknownNamesOfferTheNearest) {
  passes::PassOptions options;
  options.disabled = {"merge_dot"};
  const auto graph = std::make_shared<Graph>();
  try {
    passes::optimize(*graph, options);
    ADD_FAILURE() << "accepted";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'merge_dots'?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hotloop
