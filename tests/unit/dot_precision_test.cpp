// CompileOptions::dot_precision: factors of dots in bfloat16. The interpreter rounds them as the option says; kernels multiply pairs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bf16_roundings.h"
#include "compiled.h"
#include "core/bf16.h"
#include "guard_pages.h"
#include "hotloop/error.h"
#include "hotloop/hotloop.h"
#include "hotloop/ops.h"
#include "hotloop/train.h"
#include "schedule/host.h"

namespace hotloop {
namespace {

using testing::Compiled;

struct DotCase {
  Shape lhs, rhs;
  DotAxes axes;
};

const std::vector<DotCase>& cases() {
  static const std::vector<DotCase> all = {
      {{7, 32}, {32, 48}, {{1}, {0}, {}, {}}},  // weights
      {{7, 33}, {33, 80}, {{1}, {0}, {}, {}}},  // an odd number of products
      {{5, 3}, {3, 17}, {{1}, {0}, {}, {}}},
      {{32, 7}, {32, 48}, {{0}, {0}, {}, {}}},                  // a weight gradient
      {{9, 6, 20}, {9, 6, 40}, {{0, 1}, {0, 1}, {}, {}}},       // over steps, of which there is an odd number, and rows
      {{7, 9, 20}, {7, 5, 20, 9}, {{2, 1}, {2, 3}, {0}, {0}}},  // batched, two axes contracted in another order
      {{12, 64}, {20, 64}, {{1}, {1}, {}, {}}},                 // transposed weights
      {{6, 64}, {64, 2}, {{1}, {0}, {}, {}}},                   // few long inner products
      {{64}, {64}, {{0}, {0}, {}, {}}},
      {{6}, {20}, {}},  // nothing contracted
      {{6, 1}, {1, 20}, {{1}, {0}, {}, {}}},
      {{70, 300}, {300, 90}, {{1}, {0}, {}, {}}},
      {{600, 40}, {600, 70}, {{0}, {0}, {}, {}}},  // deep
      // Several axes of rows, or of columns, long ones and short ones, some of which become one.
      {{20, 4, 5, 32}, {32, 48}, {{3}, {0}, {}, {}}},
      {{12, 3, 5, 32}, {32, 48}, {{3}, {0}, {}, {}}},
      {{3, 5, 12, 32}, {32, 48}, {{3}, {0}, {}, {}}},
      {{3, 32, 40}, {40, 64}, {{2}, {0}, {}, {}}},
      {{9, 40}, {40, 20, 4, 5}, {{1}, {0}, {}, {}}},
      {{9, 40}, {12, 3, 40, 5}, {{1}, {2}, {}, {}}},
      {{6, 40, 3, 5}, {40, 7, 6, 20}, {{1}, {0}, {0}, {2}}},
  };
  return all;
}

Array numbers(const Shape& shape, std::uint32_t seed) {
  Array a(DType::F32, shape);
  for (std::int64_t i = 0; i < a.size(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    a.set(i, static_cast<double>(seed >> 8) / (1 << 23) - 1);
  }
  return a;
}

std::shared_ptr<const Graph> graph_of(const DotCase& c) {
  return trace([&](std::span<const Value> in) { return std::vector<Value>{dot(in[0], in[1], c.axes)}; },
               std::vector<ValueType>{{DType::F32, c.lhs}, {DType::F32, c.rhs}});
}

Array run(const std::shared_ptr<const Graph>& graph, CompileOptions options, const std::vector<Array>& inputs,
          const char* precision) {
  options.dot_precision = precision;
  return compile(graph, options)(inputs)[0];
}

class DotPrecision : public ::testing::TestWithParam<Compiled> {};

INSTANTIATE_TEST_SUITE_P(Backends, DotPrecision, ::testing::ValuesIn(testing::with_blocks(testing::all_compiled())),
                         [](const auto& info) { return testing::name_of_case(info.param); });

TEST_P(DotPrecision, IsThatOfRoundedFactors) {
  for (const DotCase& c : cases()) {
    SCOPED_TRACE(c.lhs.str() + " " + c.rhs.str());
    const std::vector<Array> inputs = {numbers(c.lhs, 1), numbers(c.rhs, 2)};
    const std::vector<Array> rounded = {rounded_to_bf16(inputs[0]), rounded_to_bf16(inputs[1])};
    const auto graph = graph_of(c);
    const Array got = run(graph, GetParam().options(), inputs, "bf16");
    CompileOptions interp;
    interp.backend = "interp";
    const Array expected = run(graph, interp, rounded, "f32"), plain = run(graph, interp, inputs, "f32");
    const Array oracle = run(graph, interp, inputs, "bf16");
    double furthest = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(oracle.at(i), expected.at(i)) << i;
      EXPECT_NEAR(got.at(i), expected.at(i), 2e-6 * std::sqrt(600.0)) << i;
      furthest = std::max(furthest, std::abs(got.at(i) - plain.at(i)));
    }
    EXPECT_GT(furthest, 1e-4) << "nothing was rounded";
  }
}

TEST_P(DotPrecision, ReadsAndWritesWhatThereIs) {
  for (const DotCase& c : cases()) {
    SCOPED_TRACE(c.lhs.str() + " " + c.rhs.str());
    const std::vector<Array> inputs = {numbers(c.lhs, 1), numbers(c.rhs, 2)};
    CompileOptions options = GetParam().options();
    options.dot_precision = "bf16";
    const std::vector<Array> wanted = compile(graph_of(c), options)(inputs);
    for (const bool at_end : {false, true})
      testing::expect_within_guards(*graph_of(c), inputs, options, at_end, wanted);
  }
}

TEST_P(DotPrecision, IsExactForSmallWholeNumbers) {
  for (const DotCase& c : cases()) {
    SCOPED_TRACE(c.lhs.str() + " " + c.rhs.str());
    std::vector<Array> inputs = {Array(DType::F32, c.lhs), Array(DType::F32, c.rhs)};
    for (Array& a : inputs)
      for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, static_cast<double>(i * 7 % 23) - 11);
    const auto graph = graph_of(c);
    CompileOptions interp;
    interp.backend = "interp";
    const Array got = run(graph, GetParam().options(), inputs, "bf16"), expected = run(graph, interp, inputs, "f32");
    EXPECT_EQ(std::memcmp(got.raw(), expected.raw(), got.bytes()), 0);
  }
}

TEST_P(DotPrecision, RoundsToNearestEvenAndKeepsWhatIsNoNumber) {
  const auto given = testing::bf16_roundings();
  const auto n = static_cast<std::int64_t>(given.size());
  const auto graph = trace(
      [](std::span<const Value> in) {
        return std::vector<Value>{dot(in[0], in[1], {{1}, {0}, {}, {}})};
      },
      std::vector<ValueType>{{DType::F32, {n, 2}}, {DType::F32, {2, 16}}});
  for (const int place : {0, 1}) {  // the upper half of a pair, and the lower one
    Array x = Array::zeros(DType::F32, {n, 2}), w = Array::zeros(DType::F32, {2, 16});
    for (std::int64_t i = 0; i < n; ++i) x.set(i * 2 + place, given[static_cast<std::size_t>(i)].given);
    for (std::int64_t j = 0; j < 16; ++j) w.set(place * 16 + j, 1.0);
    const Array got = run(graph, GetParam().options(), {x, w}, "bf16");
    for (std::int64_t i = 0; i < n; ++i) given[static_cast<std::size_t>(i)].expect(got.at(i * 16));
  }
}

// A training step of an LSTM on a batch of at most 37 rows.
struct LstmStep {
  nn::Sequential model{nn::LSTM(5, 24), nn::Last(), nn::Linear(24, 3)};
  losses::MSE loss;
  optim::Adam optimizer{1e-2};
  Tree<Array> params = model.init(1, DType::F32), state = optimizer.init(params);
  train::Step step =
      train::train_step(model, loss, optimizer, params, state, {DType::F32, {37, 9, 5}}, {DType::F32, {37, 3}});

  Executable compiled(CompileOptions options) const {
    options.batch_axes = step.batch_axes;
    options.dot_precision = "bf16";
    return compile(step.graph(), options);
  }
  std::vector<Array> arguments(std::int64_t rows) const {
    return step.arguments(params, state, numbers({rows, 9, 5}, 3), numbers({rows, 3}, 4));
  }
};

TEST_P(DotPrecision, TrainsAsTheInterpreterDoesForEveryNumberOfRows) {
  const LstmStep lstm;
  CompileOptions interp;
  interp.backend = "interp";
  const Executable oracle = lstm.compiled(interp), run = lstm.compiled(GetParam().options());
  for (const std::int64_t rows : {37, 36, 5, 1}) {
    const std::vector<Array> got = run(lstm.arguments(rows)), expected = oracle(lstm.arguments(rows));
    for (std::size_t i = 0; i < got.size(); ++i)
      for (std::int64_t k = 0; k < got[i].size(); ++k)  // a rounding apart, a factor may fall on the other side
        EXPECT_NEAR(got[i].at(k), expected[i].at(k), 2e-3 * (1 + std::abs(expected[i].at(k))))
            << rows << " rows, output " << i;
  }
}

TEST(DotPrecisionOption, GivesTheSameBitsForEveryNumberOfThreads) {
  const LstmStep lstm;
  CompileOptions options;
  const std::vector<Array> one = lstm.compiled(options)(lstm.arguments(37));
  for (const int threads : {2, 3}) {
    options.threads = threads;
    const std::vector<Array> many = lstm.compiled(options)(lstm.arguments(37));
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_EQ(std::memcmp(one[i].raw(), many[i].raw(), one[i].bytes()), 0) << threads << " threads, output " << i;
  }
}

TEST(DotPrecisionOption, GivesARowTheSameBitsInEveryBatch) {
  const nn::Sequential model{nn::LSTM(5, 24), nn::Last(), nn::Linear(24, 3)};
  const Tree<Array> params = model.init(1, DType::F32);
  const train::Step step = train::predict_step(model, params, {DType::F32, {40, 9, 5}});
  CompileOptions options;
  options.batch_axes = step.batch_axes;
  options.dot_precision = "bf16";
  const Executable run = compile(step.graph(), options);
  const Array x = numbers({40, 9, 5}, 3);
  const Array together = run(step.arguments(params, {}, {}, {.x = x}))[0];
  for (const std::int64_t row : {0, 13, 39}) {
    Array alone(DType::F32, {1, 9, 5});
    for (std::int64_t i = 0; i < alone.size(); ++i) alone.set(i, x.at(row * alone.size() + i));
    const Array y = run(step.arguments(params, {}, {}, {.x = alone}))[0];
    for (std::int64_t k = 0; k < 3; ++k) EXPECT_EQ(y.at(k), together.at(row * 3 + k)) << row;
  }
}

// Weights are paired once, before the grid; every dot of the step multiplies pairs, but for the narrow one of the last layer.
TEST(DotPrecisionOption, MultipliesPairs) {
  const LstmStep lstm;
  CompileOptions options;
  options.target = kernel::host_target().name;
  const std::string kernel = lstm.compiled(options).kernel_text();
  const auto count = [&](const std::string& what, std::size_t from, std::size_t to) {
    int n = 0;
    for (std::size_t at = kernel.find(what, from); at < to; at = kernel.find(what, at + 1)) ++n;
    return n;
  };
  const std::size_t grid = kernel.find("grid "), end = kernel.size();
  EXPECT_GT(count("of pairs m", 0, end), 3);
  EXPECT_EQ(count(" f32 m ", 0, end), 0) << kernel;
  EXPECT_GT(count("pack u32", 0, grid), 0) << kernel;
  EXPECT_EQ(count("pack u32", grid, end), 0) << kernel;
}

// With AMX as well, and all of them in blocks, for which factors are laid out at once.
TEST(DotPrecisionOption, MultipliesPairsInBlocks) {
  if (!kernel::host_runs("amx")) GTEST_SKIP() << "THIS MACHINE HAS NO AMX: NOT TESTED";
  const LstmStep lstm;
  const std::string kernel = lstm.compiled({}).kernel_text();
  const auto count = [&](const std::string& what, std::size_t from) {
    int n = 0;
    for (std::size_t at = kernel.find(what, from); at != std::string::npos; at = kernel.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_NE(kernel.find("target amx"), std::string::npos);
  EXPECT_GT(count("of pairs in blocks m", 0), 3);
  EXPECT_EQ(count(" f32 m ", 0), 0) << kernel;
  EXPECT_EQ(count("of pairs m", 0), 0) << kernel;
  EXPECT_EQ(count("pack u32", 0), 0) << kernel;
  std::set<std::string> weights;  // laid out once, before the grid
  const std::string store = "store u32 pairs#";
  for (std::size_t at = kernel.find(store); at < kernel.find("grid "); at = kernel.find(store, at + 1))
    weights.insert(kernel.substr(at, kernel.find('[', at) - at));
  EXPECT_EQ(weights.size(), 4u) << kernel;
}

// Only programs that round factors are for AMX, and only those of the backend that has it.
TEST(DotPrecisionOption, ChoosesTheTarget) {
  if (!kernel::host_runs("amx")) GTEST_SKIP() << "THIS MACHINE HAS NO AMX: NOT TESTED";
  const auto target_of = [](const char* precision, const char* backend) {
    CompileOptions options;
    options.dot_precision = precision;
    options.backend = backend;
    const std::string text = compile(graph_of(cases()[0]), options).explain();
    const std::size_t at = text.find(std::string(backend) + ", ") + std::strlen(backend) + 2;
    return text.substr(at, text.find(',', at) - at);
  };
  EXPECT_EQ(target_of("bf16", "llvm"), "amx");
  EXPECT_EQ(target_of("f32", "llvm"), "avx512");
  EXPECT_EQ(target_of("bf16", "c"), "avx512");
  CompileOptions options;
  options.target = "amx";
  options.backend = "c";
  EXPECT_THROW(compile(graph_of(cases()[0]), options), UserError);
}

// Products of two bfloat16 are exact, so that targets without fma, and processors without pairs, round as all others.
TEST(DotPrecisionOption, GivesTheSameBitsOnEveryTarget) {
  for (const DotCase& c : cases()) {
    SCOPED_TRACE(c.lhs.str() + " " + c.rhs.str());
    const std::vector<Array> inputs = {numbers(c.lhs, 1), numbers(c.rhs, 2)};
    const std::vector<Compiled> targets = testing::all_compiled();
    const Array first = run(graph_of(c), targets[0].options(), inputs, "bf16");
    for (const Compiled& target : targets) {
      const Array other = run(graph_of(c), target.options(), inputs, "bf16");
      EXPECT_EQ(std::memcmp(first.raw(), other.raw(), first.bytes()), 0) << testing::name_of_case(target);
    }
  }
}

TEST(DotPrecisionOption, LeavesDotsOfF64AsTheyAre) {
  const auto graph = trace(
      [](std::span<const Value> in) {
        return std::vector<Value>{dot(in[0], in[1], {{1}, {0}, {}, {}})};
      },
      std::vector<ValueType>{{DType::F64, {3, 8}}, {DType::F64, {8, 16}}});
  CompileOptions options;
  options.target = kernel::host_target().name;
  const std::string plain = compile(graph, options).kernel_text();
  options.dot_precision = "bf16";
  EXPECT_EQ(compile(graph, options).kernel_text(), plain);
}

TEST(DotPrecisionOption, IsOneOfTwo) {
  CompileOptions options;
  options.dot_precision = "bf61";
  try {
    compile(graph_of(cases()[0]), options);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("dot_precision must be one of f32, bf16"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace hotloop
