// Executables that take fewer rows than they were traced for.
#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "arrays.h"
#include "hotloop/error.h"
#include "hotloop/fixed_rows.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"

namespace hotloop {
namespace {

// Mean squared value over the batch, the rows scaled by an unbatched operand, and a value made from nothing but extents.
std::vector<Value> program(std::span<const Value> in) {
  const Value x = in[0], w = in[1];
  const Value y = tanh(dot(x, w, {{1}, {0}, {}, {}})) + 1.0;
  const Value numbered = y * iota(DType::F64, y.shape(), 0);
  return {numbered, mean(square(y), {0, 1}), extent(x, 0)};
}

std::vector<ValueType> types(std::int64_t rows) { return {{DType::F64, {rows, 3}}, {DType::F64, {3, 4}}}; }

std::vector<Array> inputs(std::int64_t rows) {
  Array x(DType::F64, {rows, 3}), w(DType::F64, {3, 4});
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, 0.1 * static_cast<double>(i % 7) - 0.2);
  for (std::int64_t i = 0; i < w.size(); ++i) w.set(i, 0.3 - 0.05 * static_cast<double>(i));
  return {x, w};
}

CompileOptions options(std::vector<int> batch_axes, const std::string& backend = "interp") {
  CompileOptions o;
  o.backend = backend;
  o.batch_axes = std::move(batch_axes);
  return o;
}

TEST(PartialBatch, GivesWhatATraceForFewerRowsGives) {
  const Executable run = compile(trace(program, types(8)), options({0, -1}));
  for (std::int64_t rows : {8, 5, 1}) {
    const std::vector<Array> got = run(inputs(rows));
    const std::vector<Array> expected = ir::evaluate(*trace(program, types(rows)), inputs(rows));
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].type(), expected[i].type());
      for (std::int64_t k = 0; k < got[i].size(); ++k) EXPECT_EQ(got[i].at(k), expected[i].at(k)) << rows << " " << i;
    }
  }
}

// The same number fills an array of rows and one of weights, which have the same shape in this program: two different things.
TEST(PartialBatch, ANumberThatRowsAndWeightsShareTiesThemNotTogether) {
  const TracedFunction fn = [](std::span<const Value> in) {
    const Value y = tanh(matmul(in[0] * 0.5, in[1]));
    return std::vector<Value>{y, in[1] * 0.5 - matmul(transpose(y, {1, 0}), in[0])};
  };
  const ValueType type{DType::F64, {4, 4}};
  for (const std::int64_t rows : {4, 3, 1}) {
    const Array x = testing::normal_array({rows, 4}, DType::F64, 1), w = testing::normal_array({4, 4}, DType::F64, 2);
    const std::vector<Array> got =
        compile(trace(fn, std::vector{type, type}), options({0, -1}, "llvm"))(std::vector{x, w});
    const std::vector<Array> expected = ir::evaluate(*trace(fn, std::vector{x.type(), type}), std::vector{x, w});
    for (std::size_t i = 0; i < got.size(); ++i)
      for (std::int64_t k = 0; k < got[i].size(); ++k) EXPECT_NEAR(got[i].at(k), expected[i].at(k), 1e-14) << rows;
  }
}

TEST(PartialBatch, KernelsAgreeWithTheInterpreterForEveryNumberOfRows) {
  const Executable oracle = compile(trace(program, types(37)), options({0, -1}));
  for (const char* backend : {"llvm", "c"}) {
    for (int threads : {1, 2}) {
      CompileOptions o = options({0, -1}, backend);
      o.threads = threads;
      const Executable run = compile(trace(program, types(37)), o);
      for (std::int64_t rows : {37, 36, 7, 1}) {
        const std::vector<Array> got = run(inputs(rows)), expected = oracle(inputs(rows));
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(got[i].type(), expected[i].type());
          for (std::int64_t k = 0; k < got[i].size(); ++k)
            EXPECT_NEAR(got[i].at(k), expected[i].at(k), 1e-13 * (1 + std::abs(expected[i].at(k))))
                << backend << ", " << rows << " rows, output " << i << " at " << k;
        }
      }
    }
  }
}

TEST(PartialBatch, MayHaveNoRowAtAll) {
  const auto graph = trace(program, types(0));
  const std::vector<Array> expected = ir::evaluate(*graph, inputs(0));
  for (const char* backend : {"interp", "llvm", "c"}) {
    for (const char* dispatch : {"fused", "per_op"}) {
      CompileOptions o = options({0, -1}, backend);
      o.dispatch = dispatch;
      if (o.backend == "interp" && o.dispatch == "per_op") continue;
      const Executable run = compile(graph, o);
      const std::vector<Array> got = run(inputs(0));
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].type(), expected[i].type()) << backend << " " << dispatch;
        for (std::int64_t k = 0; k < got[i].size(); ++k)
          EXPECT_TRUE(got[i].at(k) == expected[i].at(k) || std::isnan(expected[i].at(k))) << backend << " " << i;
      }
    }
  }
}

TEST(PartialBatch, RefusesMoreRows) {
  const Executable run = compile(trace(program, types(4)), options({0, -1}));
  EXPECT_THROW(run(inputs(5)), UserError);
}

TEST(PartialBatch, RefusesAProgramThatCouplesRows) {
  const TracedFunction reversed = [](std::span<const Value> in) { return std::vector<Value>{reverse(in[0], {0})}; };
  const std::vector<ValueType> type = {{DType::F32, {4, 2}}};
  try {
    compile(trace(reversed, type), options({0}));
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("operation 'reverse'"), std::string::npos) << e.what();
  }
  EXPECT_NO_THROW(compile(trace(reversed, type), options({})));
}

TEST(PartialBatch, InputsThatNeverMeetAndUnusedOnesShareTheBatch) {
  const TracedFunction apart = [](std::span<const Value> in) {
    return std::vector<Value>{exp(in[0]), reduce_sum(in[1], {0})};
  };
  const std::vector<ValueType> three = {{DType::F64, {40, 2}}, {DType::F64, {40, 3}}, {DType::I32, {40}}};
  for (const char* backend : {"interp", "llvm"}) {
    CompileOptions o = options({0, 0, 0});
    o.backend = backend;
    const Executable run = compile(trace(apart, three), o);
    const auto out = run(std::vector<Array>{Array::full(DType::F64, {5, 2}, 1), Array::full(DType::F64, {5, 3}, 2),
                                            Array::zeros(DType::I32, {5})});
    ASSERT_EQ(out[0].shape(), (Shape{5, 2})) << backend;
    EXPECT_NEAR(out[0].at(9), std::exp(1), 1e-15) << backend;
    EXPECT_EQ(out[1].at(2), 10) << backend;
  }
}

TEST(PartialBatch, NeedsTheBatchFirst) {
  const TracedFunction same = [](std::span<const Value> in) { return std::vector<Value>{neg(in[0])}; };
  const std::vector<ValueType> type = {{DType::F32, {4, 2}}};
  EXPECT_THROW(compile(trace(same, type), options({1})), UserError);
}

// compile_bound read past the end of them.
TEST(PartialBatch, BatchAxesAreOneAnInputWhereSomeAreBound) {
  const auto graph = trace([](std::span<const Value> in) { return std::vector<Value>{in[0] * in[1] + in[2]}; },
                           std::vector<ValueType>(3, {DType::F32, {4}}));
  const auto message = [&](const std::vector<Array>& bound, const CompileOptions& o) {
    try {
      (void)compile_bound(graph, bound, o);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  const Array weight = Array::full(DType::F32, {4}, 2);
  const std::string wanted =
      "[compile_bound] batch_axes has one entry an input: 3. Received: 1. Try: give -1 for inputs without a batch "
      "axis.";
  EXPECT_EQ(message({{}, {}, {}}, options({0})), wanted);
  EXPECT_EQ(message({{}, weight, {}}, options({0}, "llvm")), wanted);
  EXPECT_EQ(message({{}, weight, {}}, options({0, -1, 0}, "llvm")), "nothing was thrown");
  CompileOptions donating = options({});
  donating.donated = {3};
  EXPECT_EQ(message({{}, weight, {}}, donating),
            "[compile_bound] a donated input must be one of 3. Received: input 3.");
}

// A batch of one row may do what couples rows: there is no other number of them. One of two may not.
TEST(PartialBatch, OneRowMayBeCoupled) {
  const auto coupled = [](std::span<const Value> in) {
    return std::vector<Value>{reshape(in[0], {in[0].shape().size()})};
  };
  const auto graph_of = [&](std::int64_t rows) {
    return trace(coupled, std::vector<ValueType>{{DType::F64, {rows, 3}}});
  };
  for (const char* backend : {"interp", "llvm"}) {
    const Executable one = compile(graph_of(1), options({0}, backend));
    EXPECT_EQ(one(std::vector<Array>{inputs(1)[0]})[0].at(2), inputs(1)[0].at(2)) << backend;
    EXPECT_THROW(compile(graph_of(2), options({0}, backend)), NeedsFixedRows) << backend;
  }
}

// Two values by the same weights: their rows are not laid side by side to make one product, however many products the width is in.
TEST(PartialBatch, RowsAreNotMerged) {
  const TracedFunction fn = [](std::span<const Value> in) {
    const Value x = in[0], w = in[1], first = tanh(matmul(x, matmul(w, w)));
    return std::vector<Value>{matmul(first * 0.5, w) * matmul(tanh(x), w)};
  };
  const auto arrays = [](std::int64_t rows) {
    return std::vector<Array>{Array::full(DType::F64, {rows, 4}, 0.5), Array::full(DType::F64, {4, 4}, 0.25)};
  };
  const auto of = [](std::int64_t rows) {
    return std::vector<ValueType>{{DType::F64, {rows, 4}}, {DType::F64, {4, 4}}};
  };
  const Executable run = compile(trace(fn, of(9)), options({0, -1}, "llvm"));
  const Array got = run(arrays(5))[0], wanted = ir::evaluate(*trace(fn, of(5)), arrays(5))[0];
  ASSERT_EQ(got.type(), wanted.type());
  for (std::int64_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got.at(i), wanted.at(i), 1e-12);
}

// A write at a run-time place of each lane stays one: it does not become a choice for each place of the whole table.
TEST(PartialBatch, LanesWriteAtTheirPlaces) {
  const TracedFunction write = [](std::span<const Value> in) {
    const Value starts[] = {in[2], constant(0, DType::I32)};
    return std::vector<Value>{dynamic_update(in[0], in[1], starts), dynamic_slice(in[0], starts, {1, 3})};
  };
  for (const std::int64_t rows : {1, 2}) {
    const std::vector<ValueType> given = {{DType::F64, {rows, 9, 3}}, {DType::F64, {rows, 1, 3}}, {DType::I32, {rows}}};
    const auto graph = trace(vmap(write, {0, 0, 0}), given);
    std::set<std::string> names;
    for (const auto& node : graph->nodes()) names.insert(std::string(node->op->name));
    EXPECT_TRUE(names.contains("dynamic_update") && names.contains("dynamic_slice")) << rows;
    EXPECT_FALSE(names.contains("gather") || names.contains("select")) << rows;
  }
}

}  // namespace
}  // namespace hotloop
