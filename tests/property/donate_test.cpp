// Donated inputs: whatever the program, the outputs have the bits that they have without donation.
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "compiled.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

// Outputs of the type of the inputs, made from them in ways that read an element when it is replaced, before that, or after.
std::vector<Value> random_program(std::uint64_t seed, Values inputs) {
  const std::int64_t size = inputs[0].shape()[0];
  std::mt19937_64 rng(seed);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
  std::vector<Value> pool(inputs.begin(), inputs.end());
  const auto any = [&] { return pool[pick(pool.size())]; };
  const auto step = [&]() -> Value {
    switch (pick(10)) {
      case 0: return any() * 0.9 + any() * 0.2;
      case 1: return tanh(any()) - any() * 0.5;
      case 2: return transpose(any(), {1, 0});
      case 3: return reverse(any(), {static_cast<int>(pick(2))});
      case 4: return matmul(any(), any()) * 0.1;
      case 5: return any() - broadcast_to(reshape(reduce_sum(any(), {1}) * 0.1, {size, 1}), {size, size});
      case 6: {
        const Value x = any();
        const Value parts[] = {narrow(x, 0, 3, size - 3), narrow(x, 0, 0, 3)};
        return concat(parts, 0);
      }
      case 7: {
        const Value starts[] = {constant(static_cast<int>(pick(static_cast<std::size_t>(size - 1))), DType::I32),
                                constant(0, DType::I32)};
        return dynamic_update(any(), narrow(any(), 0, 1, 2), starts);
      }
      case 8: {  // a carry that begins as one value and is updated by another
        const Value by = any(), init[] = {any()}, xs[] = {any()};
        return scan(
                   [&](Values c, Values x) {
                     return std::pair{std::vector<Value>{c[0] * 0.9 + by * broadcast_to(x[0], {size, size})},
                                      std::vector<Value>{}};
                   },
                   init, xs)
            .first[0];
      }
      default: {  // rows that each keep to themselves
        const Value weights = any(), init[] = {any()}, xs[] = {any()};
        return scan(
                   [&](Values c, Values x) {
                     const Value h = tanh(matmul(c[0], weights) * 0.3 + broadcast_to(x[0], {size, size}));
                     return std::pair{std::vector<Value>{h}, std::vector<Value>{}};
                   },
                   init, xs)
            .first[0];
      }
    }
  };
  for (std::size_t i = 0, n = 2 + pick(4); i < n; ++i) pool.push_back(step());
  return {pool.back(), any(), pool[pool.size() - 2]};
}

class Donated : public ::testing::TestWithParam<int> {};

TEST_P(Donated, ChangesNoBit) {
  for (int n = 0; n < 12; ++n) {
    const std::uint64_t seed = static_cast<std::uint64_t>(GetParam()) * 100 + static_cast<std::uint64_t>(n);
    const std::int64_t size = n % 4 == 1 ? 4 : 12;  // 4: a buffer of one vector, which loops keep in registers
    const std::vector<ValueType> types(3, {n % 2 == 0 ? DType::F32 : DType::F64, {size, size}});
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto graph = trace([&](Values v) { return random_program(seed, v); }, types);
    std::vector<Array> inputs;
    std::mt19937_64 rng(seed);
    for (const ValueType& t : types) {
      inputs.emplace_back(t.dtype, t.shape);
      for (std::int64_t i = 0; i < inputs.back().size(); ++i)
        inputs.back().set(i, std::uniform_real_distribution<>(-1, 1)(rng));
    }
    const std::vector<Array> expected = compile(graph)(inputs);
    for (const int threads : {1, 3}) {
      CompileOptions options = (n % 3 == 2 ? all_compiled().back() : llvm_targets().back()).options();
      options.donated = {0, 1, 2};
      options.threads = threads;
      const Executable run = compile(graph, options);
      std::vector<Array> given, outputs(3);
      for (const Array& a : inputs) given.push_back(a.clone());
      const std::vector<Array> kept = run(given);
      run.run_donating(given, outputs);
      for (std::size_t k = 0; k < 3; ++k) {
        const char* which = options.backend == "c" ? " as C" : "";
        EXPECT_FALSE(given[k].defined());
        EXPECT_EQ(std::memcmp(outputs[k].raw(), kept[k].raw(), kept[k].bytes()), 0)
            << "seed " << seed << ", output " << k << which << ", " << threads << " threads\n"
            << run.kernel_text();
        if (options.backend == "llvm")
          EXPECT_EQ(std::memcmp(outputs[k].raw(), expected[k].raw(), expected[k].bytes()), 0)
              << "seed " << seed << ", output " << k << ", " << threads << " threads\n"
              << run.kernel_text();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Donated, ::testing::Range(0, 10));

}  // namespace
}  // namespace hotloop::testing
