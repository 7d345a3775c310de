// Whole training steps give the same on every backend, with optional passes off, and for a batch with fewer rows.
#include <cctype>

#include "hotloop/train.h"
#include "nn_testing.h"
#include "user_cells.h"

namespace hotloop::testing {
namespace {

using namespace nn;

struct Model {
  std::string name;
  Layer layer;
};

std::vector<Model> models() {
  return {{"lstm", Sequential(LSTM(3, 5), Last(), Linear(5, 2))},
          {"gru of two layers", Sequential(GRU(3, 4, 2), Last(), Linear(4, 2))},
          {"gru reset before", Sequential(GRU(3, 4, 1, Reset::Before), Last(), Linear(4, 2))},
          {"rnn relu", Sequential(RNN(3, 4, 1, Nonlinearity::Relu), Last(), Linear(4, 2))},
          {"layer norm lstm", Sequential(Recurrent(LayerNormLstmCell(3, 5)), Last(), Linear(5, 2))},
          {"coupled two-speed cell", Sequential(Recurrent(CoupledTwoSpeedCell(3, 5)), Last(), Linear(10, 2))},
          {"mlp", Sequential(Last(), Linear(3, 6), Activation("gelu"), LayerNorm(6), Linear(6, 2))}};
}

struct Problem {
  train::Step step;
  std::vector<Array> arguments;
};

Problem problem(const Layer& layer, DType dtype, std::int64_t rows, std::int64_t traced_rows) {
  const Tree<Array> params = layer.init(4, dtype);
  const optim::Adam adam(0.01);
  const Tree<Array> state = adam.init(params);
  const Array x = uniform(5, {rows, 6, 3}, dtype, -1, 1), y = uniform(6, {rows, 2}, dtype, -1, 1);
  const train::Step step = train::train_step(layer, losses::MSE(), adam, params, state, {dtype, {traced_rows, 6, 3}},
                                             {dtype, {traced_rows, 2}});
  return {step, step.arguments(params, state, x, y)};
}

void expect_close(const std::vector<Array>& ours, const std::vector<Array>& oracle, DType dtype) {
  ASSERT_EQ(ours.size(), oracle.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_LE(difference(ours[i], oracle[i]), dtype == DType::F32 ? 2e-6 : 1e-13) << "output " << i;
}

class NnBackends : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Model model = models()[GetParam()];
};

TEST_P(NnBackends, TrainingStepsAgreeWithTheOracle) {
  for (DType dtype : {DType::F32, DType::F64}) {
    const Problem p = problem(model.layer, dtype, 7, 7);
    const auto graph = p.step.graph();
    const std::vector<Array> oracle = ir::evaluate(*graph, p.arguments);
    for (const Backend& backend : all_backends()) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + backend.name);
      expect_close(backend.run(graph, p.arguments), oracle, dtype);
    }
    CompileOptions bare;
    bare.disabled_passes = {"all"};
    SCOPED_TRACE(std::string(name_of(dtype)) + " without optional passes");
    expect_close(compile(graph, bare)(p.arguments), oracle, dtype);
  }
}

TEST_P(NnBackends, FewerRowsAreASmallerBatch) {
  for (DType dtype : {DType::F32, DType::F64})
    for (const char* name : {"interp", "llvm"}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + name);
      const Problem small = problem(model.layer, dtype, 5, 5), padded = problem(model.layer, dtype, 5, 32);
      CompileOptions options;
      options.backend = name;
      options.batch_axes = padded.step.batch_axes;
      expect_close(compile(padded.step.graph(), options)(padded.arguments),
                   ir::evaluate(*small.step.graph(), small.arguments), dtype);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, NnBackends, ::testing::Range(std::size_t{0}, models().size()), [](const auto& info) {
  std::string name = models()[info.param].name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace
}  // namespace hotloop::testing
