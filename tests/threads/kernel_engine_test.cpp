// The engine around a kernel that stands in for generated code.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <thread>

#include "runtime/engine.h"

namespace hotloop::runtime {
namespace {

// Every worker adds its share of argument 0 into the shared arena; after the barrier worker 0 writes the sum.
void parallel_sum(const KernelContext* c) {
  const auto* x = static_cast<const double*>(c->arguments[0]);
  auto* partial = reinterpret_cast<double*>(c->shared);
  double sum = 0;
  for (std::int64_t i = c->worker; i < c->rows; i += c->num_workers) sum += x[i];
  *reinterpret_cast<double*>(c->scratch) = sum;
  partial[c->worker] = *reinterpret_cast<double*>(c->scratch);
  if (c->num_workers > 1) c->barrier(c->team);
  if (c->worker == 0) {
    auto* out = static_cast<double*>(c->results[0]);
    *out = 0;
    for (std::int64_t w = 0; w < c->num_workers; ++w) *out += partial[w];
  }
}

// Gives what memory of its own holds when it begins, and leaves something else there.
void tell_memory(const KernelContext* c) {
  double* const memory[] = {reinterpret_cast<double*>(c->shared), reinterpret_cast<double*>(c->scratch)};
  *static_cast<double*>(c->results[0]) = *memory[0] + *memory[1];
  *memory[0] = *memory[1] = 1;
}

class FixedKernel final : public CompiledKernel {
 public:
  explicit FixedKernel(KernelFunction function) : function_(function) {}
  KernelFunction function() const override { return function_; }

 private:
  KernelFunction function_;
};

std::unique_ptr<Engine> engine(int num_workers, KernelFunction function = parallel_sum) {
  kernel::Program program;
  program.name = "parallel_sum";
  program.shared_bytes = 256;
  program.worker_bytes = 64;
  program.body.push_back({kernel::Map{}});
  program.body.push_back({kernel::Grid{}});
  return make_kernel_engine(plan_run(program, num_workers, false), std::make_unique<FixedKernel>(function),
                            [] { return std::shared_ptr<const kernel::Program>(); });
}

double run(const Engine& e, std::int64_t rows) {
  std::array<double, 100> x{};
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  double out = -1;
  void* in[] = {x.data()};
  void* outs[] = {&out};
  e.run(in, outs, rows);
  return out;
}

TEST(KernelEngine, OneAndManyWorkersAgree) {
  for (int workers : {1, 2, 4}) {
    const auto e = engine(workers);
    for (int repeat = 0; repeat < 50; ++repeat) {
      EXPECT_EQ(run(*e, 100), 4950);
      EXPECT_EQ(run(*e, 10), 45);
    }
  }
}

TEST(KernelEngine, ConcurrentCallsHaveContextsOfTheirOwn) {
  const auto e = engine(2);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += run(*e, 50) != 1225;
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

// So what a schedule reads and never wrote spoils results.
TEST(KernelEngine, MemoryIsNaNBeforeItIsWritten) {
  const auto e = engine(1, tell_memory);
  EXPECT_TRUE(std::isnan(run(*e, 1)));
#ifndef NDEBUG
  EXPECT_TRUE(std::isnan(run(*e, 1))) << "with assertions in later calls, too";
#endif
}

TEST(KernelEngine, DescribesTheProgram) {
  const KernelRecord record = engine(2)->describe(1);
  EXPECT_EQ(record.name, "parallel_sum");
  EXPECT_EQ(record.num_maps, 1);
  EXPECT_EQ(record.num_grids, 1);
  EXPECT_EQ(record.num_dots, 0);
  EXPECT_EQ(record.num_workers, 2);
  EXPECT_EQ(record.shared_bytes, 256);
}

}  // namespace
}  // namespace hotloop::runtime
