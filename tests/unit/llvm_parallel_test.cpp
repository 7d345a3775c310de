// Programs compiled by several threads: the same results, kept on disk as one, and cancelled as a whole.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "arrays.h"
#include "backends/backend.h"
#include "core/cancel.h"
#include "hotloop/cancel.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "kernel_builder.h"
#include "runtime/lowering.h"
#include "targets.h"

namespace hotloop {
namespace {

// A training step, of dozens of functions, which have data and helpers in common.
struct Job {
  nn::Sequential model{nn::LSTM(5, 24), nn::Last(), nn::Linear(24, 40), nn::Activation("gelu"), nn::Linear(40, 3)};
  losses::MSE loss;
  optim::Adam optimizer{1e-2};
  Tree<Array> params = model.init(1, DType::F32), state = optimizer.init(params);
  train::Step step =
      train::train_step(model, loss, optimizer, params, state, {DType::F32, {37, 9, 5}}, {DType::F32, {37, 3}});
  kernel::Program program;

  explicit Job(const std::string& target) {
    CompileOptions options;
    options.batch_axes = step.batch_axes;
    options.target = target;
    program = runtime::lower(*step.graph(), options, kernel::target_named(target)).program;
  }
  std::vector<Array> run(const CompiledKernel& kernel) const {
    const std::vector<Array> arguments = step.arguments(params, state, testing::normal_array({37, 9, 5}, DType::F32, 3),
                                                        testing::normal_array({37, 3}, DType::F32, 4));
    std::vector<Array> results;
    for (const ValueType& type : program.results) results.push_back(Array::zeros(type.dtype, type.shape));
    kernel::run_kernel(program, kernel.function(), arguments, results);
    return results;
  }
};

void expect_same(const std::vector<Array>& got, const std::vector<Array>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(testing::same_bits(got[i], expected[i])) << "result " << i;
}

TEST(LlvmParallel, GivesTheSameResultsForAnyNumberOfThreads) {
  for (const std::string& target : kernel::runnable_targets()) {
    SCOPED_TRACE(target);
    const Job job(target);
    const auto alone = compile_llvm(job.program);
    EXPECT_EQ(alone->num_objects, 1);
    const std::vector<Array> expected = job.run(*alone);
    for (const int threads : {2, 3, 64}) {
      SCOPED_TRACE(threads);
      const auto kernel = compile_llvm(job.program, {.compile_threads = threads});
      EXPECT_GT(kernel->num_objects, 1);
      EXPECT_LE(kernel->num_objects, threads);
      EXPECT_GT(kernel->code_bytes, alone->code_bytes / 2);
      expect_same(job.run(*kernel), expected);
    }
  }
}

TEST(LlvmParallel, IsOneEntryOfTheDiskCache) {
  const std::filesystem::path directory = ::testing::TempDir() + "hotloop_parallel_cache" + std::to_string(::getpid());
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  const Job job(kernel::host_target().name);
  const BackendOptions options{.cache_dir = directory, .compile_threads = 3};
  const auto first = compile_llvm(job.program, options);
  EXPECT_FALSE(first->from_cache);
  const auto entries = std::filesystem::directory_iterator(directory);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
  const auto again = compile_llvm(job.program, options);
  EXPECT_TRUE(again->from_cache);
  EXPECT_EQ(again->num_objects, first->num_objects);
  EXPECT_EQ(again->code_bytes, first->code_bytes);
  expect_same(job.run(*again), job.run(*first));
  // By whatever number of threads it was compiled.
  EXPECT_TRUE(compile_llvm(job.program, {.cache_dir = directory})->from_cache);
  std::filesystem::remove_all(directory);
}

TEST(LlvmParallel, EndsWhereItIsCancelled) {
  const Job job(kernel::host_target().name);
  CancelToken token;
  const CancelScope scope(token);
  token.request();
  EXPECT_THROW(compile_llvm(job.program, {.compile_threads = 4}), Cancelled);
  token.clear();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    token.request();
  });
  const auto start = std::chrono::steady_clock::now();
  try {
    while (std::chrono::steady_clock::now() - start < std::chrono::seconds(60))
      compile_llvm(job.program, {.compile_threads = 4});
    ADD_FAILURE() << "nothing was cancelled";
  } catch (const Cancelled&) {
  }
  other.join();
}

}  // namespace
}  // namespace hotloop
