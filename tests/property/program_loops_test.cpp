// Loops whose iterations hold tile regions of their own, such as many training steps in one call: they run at program level.
#include "compiled.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/ops.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

Array ramp(const Shape& shape, DType dtype, double scale) {
  Array a(dtype, shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, scale * static_cast<double>((i * 37 + 11) % 101 - 50) / 50);
  return a;
}

// Five training steps on five batches as one scan: (params, state, xs, ys) -> (params, state, losses).
struct ManySteps {
  explicit ManySteps(const nn::Layer& model, DType dtype, const Shape& x, const Shape& y)
      : params(model.init(1, dtype)),
        optimizer(1e-2),
        state(optimizer.init(params)),
        step(train::train_step(model, losses::MSE(), optimizer, params, state, {dtype, x}, {dtype, y})) {
    arguments = params.flatten();
    for (const Array& leaf : state.flatten()) arguments.push_back(leaf);
    num_carry = arguments.size();
    arguments.push_back(ramp(x.with_inserted(0, 5), dtype, 1));
    arguments.push_back(ramp(y.with_inserted(0, 5), dtype, 0.5));
    graph = trace(
        [&](std::span<const Value> in) {
          const auto [carry, losses] = scan(
              [&](std::span<const Value> c, std::span<const Value> batch) {
                std::vector<Value> all(c.begin(), c.end());
                all.insert(all.end(), batch.begin(), batch.end());
                std::vector<Value> out = step.function(all);
                const Value loss = out.back();
                out.pop_back();
                return std::pair(out, std::vector<Value>{loss});
              },
              in.first(num_carry), in.subspan(num_carry));
          std::vector<Value> outputs = carry;
          outputs.push_back(losses[0]);
          return outputs;
        },
        ir::types_of(arguments), "many_steps");
  }
  Tree<Array> params;
  optim::Adam optimizer;
  Tree<Array> state;
  train::Step step;
  std::size_t num_carry = 0;
  std::vector<Array> arguments;
  std::shared_ptr<Graph> graph;
};

void agrees(const ManySteps& many, DType dtype, int threads) {
  const auto wanted = ir::evaluate(*many.graph, many.arguments);
  CompileOptions options;
  options.threads = threads;
  const auto got = compile(many.graph, options)(many.arguments);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(ir::close(got[i], wanted[i], dtype == DType::F32 ? 1e-5 : 1e-12)) << "output " << i;
}

TEST(ProgramLoops, ManyTrainingStepsOfAnMlp) {
  const nn::Sequential model(nn::Linear(6, 40), nn::Activation("tanh"), nn::Linear(40, 2));
  for (const DType dtype : {DType::F32, DType::F64})
    for (const int threads : {1, 2}) agrees(ManySteps(model, dtype, {64, 6}, {64, 2}), dtype, threads);
}

TEST(ProgramLoops, ManyTrainingStepsOfAnLstm) {
  const nn::Sequential model(nn::LSTM(3, 20), nn::Last(), nn::Linear(20, 1));
  for (const int threads : {1, 2}) agrees(ManySteps(model, DType::F64, {40, 7, 3}, {40, 1}), DType::F64, threads);
}

TEST(ProgramLoops, TheStepsAreTiledInsideTheLoop) {
  const nn::Sequential model(nn::LSTM(3, 20), nn::Last(), nn::Linear(20, 1));
  const ManySteps many(model, DType::F32, {40, 7, 3}, {40, 1});
  ScheduleOptions options;
  options.target = kernel::target_named("avx2");
  const kernel::Program program = schedule(*passes::optimize(*many.graph, {}), options);
  int grids_in_loops = 0;
  for (const kernel::Stmt& stmt : program.body)
    if (const auto* loop = std::get_if<kernel::For>(&stmt.node))
      for (const kernel::Stmt& inner : loop->body) grids_in_loops += std::holds_alternative<kernel::Grid>(inner.node);
  EXPECT_EQ(grids_in_loops, 1) << kernel::print(program);
}

}  // namespace
}  // namespace hotloop
