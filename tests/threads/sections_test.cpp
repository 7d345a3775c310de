// Programs without a batch to deal out: independent parts run at once, and any number of threads gives the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "hotloop/hotloop.h"
#include "kernel_reference.h"
#include "runtime/lowering.h"

namespace hotloop {
namespace {

struct Job {
  std::shared_ptr<const Graph> graph;
  std::vector<Array> arguments;
};

using Options = nn::RecurrentOptions;

Job inference(const nn::Layer& layer, std::int64_t steps, std::int64_t inputs, std::int64_t rows = 1) {
  const nn::Sequential model(layer);
  const Tree<Array> params = model.init(0);
  const train::Step step = train::predict_step(model, params, {DType::F32, {rows, steps, inputs}});
  return {step.graph(),
          step.arguments(params, {}, {}, {.x = nn::uniform(1, {rows, steps, inputs}, DType::F32, -1, 1)})};
}

Job training(const nn::Layer& layer, std::int64_t steps, std::int64_t inputs, std::int64_t outputs,
             std::int64_t rows = 1) {
  const nn::Sequential model(layer, nn::Last(), nn::Linear(outputs, 1));
  const Tree<Array> params = model.init(0);
  const optim::Adam adam(1e-3);
  const Tree<Array> state = adam.init(params);
  const train::Step step = train::train_step(model, losses::MSE(), adam, params, state,
                                             {DType::F32, {rows, steps, inputs}}, {DType::F32, {rows, 1}});
  return {step.graph(), step.arguments(params, state, nn::uniform(1, {rows, steps, inputs}, DType::F32, -1, 1),
                                       nn::uniform(2, {rows, 1}, DType::F32, -1, 1))};
}

Executable compiled(const Job& job, int threads, const std::string& backend = "llvm") {
  CompileOptions options;
  options.threads = threads;
  options.backend = backend;
  return compile(job.graph, options);
}

KernelRecord record_of(const Executable& run, const Job& job) {
  KernelHistory::start();
  run(job.arguments);
  return KernelHistory::stop().at(0);
}

void expect_same_bits(const Job& job, const std::string& name, const std::string& backend = "llvm") {
  SCOPED_TRACE(name + " " + backend);
  const std::vector<Array> expected = compiled(job, 1, backend)(job.arguments);
  for (const int threads : {2, 3, 4}) {
    const Executable run = compiled(job, threads, backend);
    const KernelRecord record = record_of(run, job);
    EXPECT_GT(record.num_sections, 1) << run.kernel_text();
    EXPECT_EQ(record.num_workers, threads);
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::vector<Array> results = run(job.arguments);
      for (std::size_t i = 0; i < results.size(); ++i)
        ASSERT_EQ(std::memcmp(results[i].raw(), expected[i].raw(), expected[i].bytes()), 0)
            << threads << " threads, output " << i;
    }
  }
}

TEST(Sections, DirectionsOfOneRowKeepTheirBits) {
  const Options both{.bidirectional = true};
  expect_same_bits(inference(nn::LSTM(5, 7, both), 11, 5), "LSTM");
  expect_same_bits(inference(nn::GRU(5, 7, both), 11, 5), "GRU");
  expect_same_bits(inference(nn::RNN(5, 7, both), 11, 5), "RNN");
  expect_same_bits(inference(nn::LSTM(5, 7, {.num_layers = 2, .bidirectional = true}), 11, 5), "two layers");
  expect_same_bits(inference(nn::LSTM(5, 7, both), 11, 5), "LSTM", "c");
}

TEST(Sections, TrainingStepsOfOneRowKeepTheirBits) {
  const Options both{.bidirectional = true};
  expect_same_bits(training(nn::LSTM(5, 7, both), 11, 5, 14), "LSTM");
  expect_same_bits(training(nn::GRU(5, 7, both), 11, 5, 14), "GRU");
  expect_same_bits(training(nn::LSTM(5, 7), 11, 5, 7), "one direction: products of the gradient");
}

// Stacked layers over one row: a chunk of steps behind each other.
TEST(Sections, StackedLayersKeepTheirBits) {
  for (const bool train : {false, true}) {
    const auto job = [&](const nn::Layer& layer) {
      return train ? training(layer, 13, 5, 7) : inference(layer, 13, 5);
    };
    expect_same_bits(job(nn::LSTM(5, 7, 2)), "LSTM");
    expect_same_bits(job(nn::GRU(5, 7, 3)), "GRU of three");
    expect_same_bits(job(nn::RNN(5, 7, 4)), "RNN of four");
    const std::string text = compiled(job(nn::LSTM(5, 7, 2)), 2).kernel_text();
    EXPECT_NE(text.find("sections in chunks of"), std::string::npos) << text;
    if (train) EXPECT_NE(text.find("of 13 reverse"), std::string::npos) << text;
  }
  expect_same_bits(inference(nn::LSTM(5, 7, 2), 13, 5), "LSTM", "c");
}

// A batch that is one tile: its rows are not dealt out either.
TEST(Sections, ShortBatchesKeepTheirBits) {
  for (const std::int64_t rows : {2, 3}) {
    const Options both{.bidirectional = true};
    expect_same_bits(inference(nn::LSTM(5, 7, both), 11, 5, rows), "both directions");
    expect_same_bits(training(nn::LSTM(5, 7, both), 11, 5, 14, rows), "both directions, training");
    expect_same_bits(inference(nn::GRU(5, 7, 2), 11, 5, rows), "stacked");
    expect_same_bits(training(nn::LSTM(5, 7, 2), 11, 5, 7, rows), "stacked, training");
  }
}

// Two solutions of differential equations that have nothing to do with each other.
TEST(Sections, SolutionsKeepTheirBits) {
  const auto graph = trace(
      [](std::span<const Value> v) {
        std::vector<Value> ends;
        for (int i = 0; i < 2; ++i) {
          const Value w = v[static_cast<std::size_t>(2 * i)], y0 = v[static_cast<std::size_t>(2 * i + 1)];
          const auto step = [&](std::span<const Value> y, std::span<const Value>) {
            return std::pair{std::vector<Value>{y[0] + tanh(matmul(w, y[0])) * 0.1}, std::vector<Value>{}};
          };
          const auto [last, states] = scan(step, std::vector<Value>{y0}, {}, {.length = 20});
          ends.push_back(last[0]);
        }
        return ends;
      },
      std::vector<ValueType>{{DType::F32, {9, 9}}, {DType::F32, {9}}, {DType::F32, {9, 9}}, {DType::F32, {9}}}, "two");
  std::vector<Array> arguments;
  for (std::uint64_t i = 0; i < 4; ++i)
    arguments.push_back(nn::uniform(i, i % 2 == 0 ? Shape{9, 9} : Shape{9}, DType::F32, -1, 1));
  expect_same_bits({graph, arguments}, "two solutions");
}

// Each worker reads on its own whether the loop goes on, where others may be at its next iteration or behind it already.
TEST(Sections, MinimisationsKeepTheirBits) {
  const auto graph = trace(
      [](std::span<const Value> v) {
        const auto loss = [&](const Tree<Value>& p) {
          return mean(square(matmul(tanh(matmul(v[2], p["in"])), p["out"]) - v[3]));
        };
        const Minimum m = minimize(loss, {{"in", v[0]}, {"out", v[1]}}, minimizers::LBFGS(), {.max_iterations = 40});
        return std::vector<Value>{m.params["in"], m.value, m.evaluations, m.status};
      },
      std::vector<ValueType>{
          {DType::F32, {2, 8}}, {DType::F32, {8, 1}}, {DType::F32, {100, 2}}, {DType::F32, {100, 1}}},
      "minimisation");
  std::vector<Array> arguments;
  for (const Shape& shape : {Shape{2, 8}, Shape{8, 1}, Shape{100, 2}, Shape{100, 1}})
    arguments.push_back(nn::uniform(arguments.size(), shape, DType::F32, -1, 1));
  expect_same_bits({graph, arguments}, "minimisation");
}

// What runs at once may run in any order: with the sections of each round from the last to the first, one after the other, nothing changes.
TEST(Sections, DoNotDependOnTheirOrder) {
  const std::vector<std::pair<std::string, Job>> jobs = {
      {"directions", inference(nn::LSTM(4, 5, Options{.num_layers = 2, .bidirectional = true}), 9, 4)},
      {"layers", inference(nn::GRU(4, 5, 3), 9, 4)},
      {"directions, training", training(nn::LSTM(4, 5, Options{.bidirectional = true}), 9, 4, 10)},
      {"layers, training", training(nn::LSTM(4, 5, 2), 9, 4, 5)},
      {"layers, three rows", training(nn::GRU(4, 5, 2), 9, 4, 5, 3)}};
  for (const auto& [name, job] : jobs) {
    SCOPED_TRACE(name);
    CompileOptions options;
    options.threads = 4;
    options.target = "portable";
    const kernel::Program program = runtime::lower(*job.graph, options, kernel::target_named(options.target)).program;
    ASSERT_NE(kernel::print(program).find("section"), std::string::npos);
    std::vector<std::vector<Array>> results(2);
    for (const bool backwards : {false, true}) {
      for (const ValueType& type : program.results) results[backwards].push_back(Array::zeros(type.dtype, type.shape));
      kernel::Reference reference(program, job.arguments, results[backwards], 1);
      reference.backwards = backwards;
      reference.run();
    }
    for (std::size_t i = 0; i < results[0].size(); ++i)
      EXPECT_EQ(std::memcmp(results[0][i].raw(), results[1][i].raw(), results[0][i].bytes()), 0) << "output " << i;
  }
}

// As any program has it, the cost model decides.
class SectionsByCost : public ::testing::Test {
 protected:
  void SetUp() override { setenv("HOTLOOP_TEAM", "worth", 1); }
  void TearDown() override { setenv("HOTLOOP_TEAM", "always", 1); }
};

TEST_F(SectionsByCost, TheShapesOfOneRowAreShared) {
  // oneDNN issue 837: one row, both directions.
  for (const auto& [steps, inputs] : {std::pair{63, 24}, std::pair{31, 48}, std::pair{15, 96}}) {
    const Job job = inference(nn::LSTM(inputs, 32, Options{.bidirectional = true}), steps, inputs);
    const Executable run = compiled(job, 2);
    const KernelRecord record = record_of(run, job);
    EXPECT_EQ(record.num_workers, 2) << run.explain();
    EXPECT_GE(record.num_sections, 2) << run.explain();
    EXPECT_NE(run.explain().find("sections"), std::string::npos) << run.explain();
    EXPECT_EQ(record_of(compiled(job, 1), job).num_sections, 0);
  }
}

// Chunks of several steps, of which the last (in a gradient the first) is not full.
TEST_F(SectionsByCost, StackedLayersAreShared) {
  const std::vector<std::pair<std::string, Job>> jobs = {{"inference", inference(nn::LSTM(16, 64, 2), 61, 16)},
                                                         {"training", training(nn::LSTM(16, 64, 2), 61, 16, 64)},
                                                         {"three", inference(nn::GRU(16, 64, 3), 61, 16)}};
  for (const auto& [name, job] : jobs) {
    SCOPED_TRACE(name);
    const std::vector<Array> expected = compiled(job, 1)(job.arguments);
    for (const int threads : {2, 3}) {
      const Executable run = compiled(job, threads);
      if (name != "three" || threads == 3)  // three layers are no work for two
        EXPECT_NE(run.kernel_text().find("sections in chunks of"), std::string::npos) << run.explain();
      for (int repeat = 0; repeat < 5; ++repeat) {
        const std::vector<Array> results = run(job.arguments);
        for (std::size_t i = 0; i < results.size(); ++i)
          ASSERT_EQ(std::memcmp(results[i].raw(), expected[i].raw(), expected[i].bytes()), 0) << "output " << i;
      }
    }
  }
}

TEST_F(SectionsByCost, LittleWorkIsNotCut) {
  const Job job = inference(nn::LSTM(3, 4, Options{.bidirectional = true}), 5, 3);
  const KernelRecord record = record_of(compiled(job, 2), job);
  EXPECT_EQ(record.num_workers, 1);
  EXPECT_EQ(record.num_sections, 0);
}

}  // namespace
}  // namespace hotloop
