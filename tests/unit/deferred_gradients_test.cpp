// Cells that use their parameters in other ways than as factors of products: by functions, norms, low ranks, slices, scalars. What their
// gradients sum over rows and steps leaves the loop, so that a training step is one grid of tiles, and is the same to rounding.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/jit.h"
#include "hotloop/nn.h"
#include "hotloop/ops.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "ir/op_def.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

constexpr std::int64_t batch = 20, steps = 6, inputs = 3, hidden = 8;

using Params = Tree<Value>;
struct CellCase {
  std::string name;
  std::vector<std::pair<std::string, Shape>> params;  // besides W (hidden, inputs)
  std::function<Value(const Params&, Value projection, Value h)> next;
};
void PrintTo(const CellCase& c, std::ostream* out) { *out << c.name; }

Value row(Value vector) { return broadcast(vector, {batch, hidden}, {1}); }

const std::vector<CellCase> cells = {
    {"learned_rate",
     {{"U", {hidden, hidden}}, {"rate", {hidden}}},
     [](const Params& p, Value projection, Value h) {
       const Value rate = 1.0 / (1.0 + exp(p["rate"]));
       return (1.0 - rate) * h + rate * tanh(projection + nn::linear(h, p["U"]));
     }},
    {"low_rank",
     {{"A", {hidden, 2}}, {"C", {2, hidden}}},
     [](const Params& p, Value projection, Value h) {
       return tanh(projection + nn::linear(h, matmul(p["A"], p["C"])));
     }},
    {"weight_norm",
     {{"V", {hidden, hidden}}, {"g", {hidden}}},
     [](const Params& p, Value projection, Value h) {
       const Value norm = sqrt(reduce_sum(p["V"] * p["V"], {1}));
       return tanh(projection + nn::linear(h, p["V"] * broadcast(p["g"] / norm, {hidden, hidden}, {0})));
     }},
    {"antisymmetric",
     {{"U", {hidden, hidden}}},
     [](const Params& p, Value projection, Value h) {
       return h + 0.1 * tanh(projection + matmul(h, p["U"] - transpose(p["U"], {1, 0})));
     }},
    {"sliced",
     {{"U", {2 * hidden, hidden}}},
     [](const Params& p, Value projection, Value h) {
       const Value u = slice(p["U"], {0, 0}, {hidden, hidden}), v = slice(p["U"], {hidden, 0}, {2 * hidden, hidden});
       const Value z = sigmoid(nn::linear(h, u));
       return z * h + (1.0 - z) * tanh(projection + nn::linear(h, v));
     }},
    {"scalar_gain",
     {{"U", {hidden, hidden}}, {"k", {}}},
     [](const Params& p, Value projection, Value h) { return tanh(projection + exp(p["k"]) * nn::linear(h, p["U"])); }},
    {"mixed_activations",
     {{"U", {hidden, hidden}}, {"a", {3}}},
     [](const Params& p, Value projection, Value h) {
       const Value z = projection + nn::linear(h, p["U"]), a = softmax(p["a"], 0);
       return take(a, 0, 0) * tanh(z) + take(a, 0, 1) * sigmoid(z) + take(a, 0, 2) * softplus(z);
     }},
    {"normalised",
     {{"U", {hidden, hidden}}, {"gain", {hidden}}},
     [](const Params& p, Value projection, Value h) {
       const Value z = projection + nn::linear(h, p["U"]);
       const Value scale = broadcast(sqrt(mean(z * z, {1}) + 1e-3), {batch, hidden}, {0});
       return tanh(z / scale * row(softplus(p["gain"])));
     }},
};

class CellOf : public nn::Cell {
 public:
  explicit CellOf(const CellCase& c) : case_(c) {}
  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init) const override {
    Tree<Array> params;
    params.set("W", nn::uniform(nn::fold_in(seed, "W"), {hidden, inputs}, dtype, -0.5, 0.5));
    for (const auto& [name, shape] : case_.params)
      params.set(name, nn::uniform(nn::fold_in(seed, name), shape, dtype, -0.7, 0.7));
    return params;
  }
  Tree<Value> initial_state(std::int64_t rows, DType dtype) const override {
    return {{"h", nn::zero_state(rows, hidden, dtype)}};
  }
  std::pair<Tree<Value>, Value> step(const Params& p, const Tree<Value>& state, Value x) const override {
    const Value h = case_.next(p, nn::linear(x, p["W"]), state["h"]);
    return {{{"h", h}}, h};
  }

 private:
  CellCase case_;
};

class DeferredGradients : public ::testing::TestWithParam<CellCase> {
 protected:
  nn::Sequential model{nn::Recurrent(CellOf(GetParam())), nn::Last(), nn::Linear(hidden, 1)};
  optim::SGD optimizer{1.0};  // new parameters are old ones less the gradients
  Tree<Array> params = model.init(1, DType::F64), state = optimizer.init(params);
  Array x = nn::uniform(2, {batch, steps, inputs}, DType::F64, -1, 1),
        y = nn::uniform(3, {batch, 1}, DType::F64, -1, 1);
  train::Step step = train::train_step(model, losses::MSE(), optimizer, params, state, x.type(), y.type());
};

int num_grids(const kernel::Block& block, bool in_loop, int& in_loops) {
  int grids = 0;
  for (const kernel::Stmt& stmt : block) {
    if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) grids += num_grids(loop->body, true, in_loops);
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) {
      ++grids;
      in_loops += in_loop;
    }
  }
  return grids;
}

TEST_P(DeferredGradients, LeaveOneGrid) {
  passes::PassOptions pass_options;
  pass_options.batch_axes = step.batch_axes;
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  options.batch_axes = step.batch_axes;
  const kernel::Program program = schedule(*passes::optimize(*step.graph(), pass_options), options);
  SCOPED_TRACE(kernel::print(program));
  int in_loops = 0;
  EXPECT_EQ(num_grids(program.body, false, in_loops), 1);
  EXPECT_EQ(in_loops, 0);
}

TEST_P(DeferredGradients, AreTheSameToRounding) {
  const std::vector<Array> arguments = step.arguments(params, state, x, y);
  const std::vector<Array> expected = ir::evaluate(*step.graph(), arguments);
  CompileOptions options;
  options.batch_axes = step.batch_axes;
  const std::vector<Array> found = compile(step.graph(), options)(arguments);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t k = 0; k < found.size(); ++k) EXPECT_TRUE(ir::close(found[k], expected[k], 1e-13)) << k;
}

INSTANTIATE_TEST_SUITE_P(All, DeferredGradients, ::testing::ValuesIn(cells),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hotloop
