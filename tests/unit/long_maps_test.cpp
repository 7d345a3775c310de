// Loops that were unrolled by whoever wrote the program: chains and sums of chains of any length, in maps of a bounded one.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "hotloop/hotloop.h"
#include "ir/op_def.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/accesses.h"
#include "schedule/parts.h"
#include "schedule/schedule.h"
#include "targets.h"

namespace hotloop {
namespace {

// q'' = -g sin q by leapfrog, which a loop takes step by step, or the program all at once.
std::vector<Value> kick_and_drift(std::span<const Value> s, Value g) {
  const Value p = s[1] - 0.01 * g * sin(s[0]);
  return {s[0] + 0.01 * p, p};
}

std::vector<Value> unrolled(std::span<const Value> in, int steps) {
  std::vector<Value> s = {in[0], in[1]};
  for (int i = 0; i < steps; ++i) s = kick_and_drift(s, in[2]);
  return s;
}

std::size_t longest_map(const kernel::Block& block) {
  std::size_t longest = 0;
  for (const kernel::Stmt& stmt : block) {
    if (const auto* grid = std::get_if<kernel::Grid>(&stmt.node)) longest = std::max(longest, longest_map(grid->body));
    if (const auto* loop = std::get_if<kernel::For>(&stmt.node)) longest = std::max(longest, longest_map(loop->body));
    if (const auto* one = std::get_if<kernel::Single>(&stmt.node)) longest = std::max(longest, longest_map(one->body));
    if (const auto* map = std::get_if<kernel::Map>(&stmt.node)) longest = std::max(longest, map->instrs.size());
  }
  return longest;
}

// Steps that are equal would be a loop again.
const std::vector<std::string> stays_straight = {"reroll"};

const std::vector<ValueType> types = {{DType::F64, {21}}, {DType::F64, {21}}, {DType::F64, {}}};

TEST(LongMaps, AnUnrolledLoopIsManyMapsWithTheBitsOfTheLoop) {
  const std::vector<Array> in = {testing::normal_array({21}, DType::F64, 1), testing::normal_array({21}, DType::F64, 2),
                                 Array::scalar(9.81)};
  for (const int steps : {10, 200}) {
    const auto all = trace([&](std::span<const Value> v) { return unrolled(v, steps); }, types);
    const auto loop = trace(
        [&](std::span<const Value> v) {
          const auto step = [g = v[2]](std::span<const Value> s, std::span<const Value>) {
            return std::pair(kick_and_drift(s, g), std::vector<Value>());
          };
          return scan(step, v.first(2), {}, {.length = steps}).first;
        },
        types);
    for (const std::string& target : kernel::runnable_targets()) {
      CompileOptions options{.target = target};
      const std::vector<Array> want = compile(loop, options)(in);
      options.disabled_passes = stays_straight;
      const std::vector<Array> got = compile(all, options)(in);
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(testing::same_bits(got[i], want[i])) << steps << target;
    }
    const kernel::Program program = schedule(*passes::optimize(*all, {.disabled = stays_straight}), {});
    EXPECT_LE(longest_map(program.body), 4000u) << steps;
  }
}

// Batches of small matrices lie with their rows side by side, all numbers of a row at one point: functions of 81 numbers would be 81
// copies of their code. Each number is a point of its own instead, also where it reads another number of its row.
TEST(LongMaps, FunctionsOfTheNumbersOfARowAreWrittenOnce) {
  const auto fn = [](std::span<const Value> in) {
    const auto turned = [](Value v) { return transpose(v, {1, 0}); };
    const auto root = [&](Value v) { return linalg::cholesky(v + turned(v) + in[2]); };
    const Value first = root(in[0]);
    const Value wave = sin(first) * cos(in[0]);
    const Value mixed = cos(wave + turned(wave)) * sin(turned(first) + in[1]);
    return std::vector<Value>{root(cos(mixed) * in[1]), turned(wave)};
  };
  constexpr std::int64_t n = 9;
  for (const DType dtype : {DType::F32, DType::F64}) {
    Array diagonal = Array::zeros(dtype, {n, n});
    for (std::int64_t i = 0; i < n; ++i) diagonal.set(i * n + i, 40);
    const std::vector<Array> in = {testing::normal_array({65, n, n}, dtype, 1), testing::normal_array({n, n}, dtype, 2),
                                   diagonal};
    const auto graph = trace(vmap(fn, {0, -1, -1}), ir::types_of(in));
    const std::vector<Array> want = ir::evaluate(*graph, in);
    const std::vector<Array> got = compile(graph)(in);
    const double rounding = dtype == DType::F32 ? 1e-4 : 1e-12;
    for (std::size_t i = 0; i < want.size(); ++i)
      for (std::int64_t k = 0; k < want[i].size(); ++k) ASSERT_NEAR(got[i].at(k), want[i].at(k), rounding) << i;
    EXPECT_LE(longest_map(schedule(*passes::optimize(*graph, {}), {}).body), 1500u);
  }
}

// Buffers of the statement that uses most; `parts`: of the longest function that a long block is cut into.
std::size_t most_buffers(const kernel::Block& block, bool parts) {
  std::size_t most = 0;
  for (const kernel::Part& part : kernel::parts_of(block)) {
    std::set<int> of_part;
    for (std::size_t i = part.begin; i < part.end; ++i) {
      std::set<int> of_statement;
      kernel::for_each_access(block[i], [&](const kernel::Use& use) { of_statement.insert(use.access->buffer); });
      kernel::for_each_block(block[i],
                             [&](const kernel::Block& inside) { most = std::max(most, most_buffers(inside, parts)); });
      of_part.insert(of_statement.begin(), of_statement.end());
      if (!parts) most = std::max(most, of_statement.size());
    }
    if (parts) most = std::max(most, of_part.size());
  }
  return most;
}

// An optimiser's update of hundreds of weights, which have nothing to do with one another: a map of all would read and write hundreds of arrays.
TEST(LongMaps, ManyWeightsAreUpdatedByMapsOfSome) {
  constexpr std::size_t num_weights = 200;
  const auto update = [](std::span<const Value> in) {
    const auto step = [&](std::span<const Value> s, std::span<const Value>) {
      std::vector<Value> next(s.begin(), s.end());
      for (std::size_t i = 0; i < num_weights; ++i) {
        next[num_weights + i] = 0.9 * s[num_weights + i] + in[2 * num_weights + i];
        next[i] = s[i] - 0.01 * next[num_weights + i];
      }
      return std::pair(next, std::vector<Value>());
    };
    return scan(step, in.first(2 * num_weights), {}, {.length = 3}).first;
  };
  const auto graph = trace(update, std::vector<ValueType>(3 * num_weights, ValueType{DType::F32, {16, 9}}));
  std::vector<Array> in;
  for (unsigned i = 0; i < 3 * num_weights; ++i) in.push_back(testing::normal_array({16, 9}, DType::F32, i));
  const std::vector<Array> want = ir::evaluate(*graph, in);
  for (const char* backend : {"llvm", "c"}) {
    const std::vector<Array> got = compile(graph, {.backend = backend})(in);
    for (std::size_t i = 0; i < want.size(); ++i)
      for (std::int64_t k = 0; k < want[i].size(); ++k) ASSERT_NEAR(got[i].at(k), want[i].at(k), 1e-5) << i;
  }
  const kernel::Program program = schedule(*passes::optimize(*graph, {}), {});
  EXPECT_LE(most_buffers(program.body, false), 36u);
  EXPECT_LE(most_buffers(program.body, true), 128u);
}

// A thread of a plug-in has a small stack. What a sanitizer puts around variables makes frames several times as large.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t small_stack = 4 << 20;
#else
constexpr std::size_t small_stack = 512 << 10;
#endif
TEST(LongMaps, AChainOfAnyLengthIsCompiledOnASmallStack) {
  const std::function<void()> work = [] {
    const auto chain = trace(
        [](std::span<const Value> v) {
          Value x = v[0];
          for (int i = 0; i < 3000; ++i) x = tanh(x) * 1.01 + 0.1;
          return std::vector<Value>{x};
        },
        std::vector<ValueType>{{DType::F32, {8}}});
    const Array x = Array::full(DType::F32, {8}, 1);
    const Array got = compile(chain, {.disabled_passes = stays_straight})(std::vector<Array>{x})[0];
    float want = 1;
    for (int i = 0; i < 3000; ++i) want = std::tanh(want) * 1.01F + 0.1F;
    EXPECT_NEAR(got.at(3), want, 1e-4);
  };
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, small_stack);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &small,
                [](void* f) -> void* {
                  (*static_cast<const std::function<void()>*>(f))();
                  return nullptr;
                },
                const_cast<std::function<void()>*>(&work)),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&small);
}

}  // namespace
}  // namespace hotloop
