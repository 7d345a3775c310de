// Programs of many layers, in which values meet again on many ways, are scheduled in a time that grows with their length: a walk over operands that
// forgets where it has been takes twice as many steps for each layer, and the test would not end.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "passes/pipeline.h"
#include "schedule/accesses.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

struct Layer {
  std::string name;
  std::function<Value(Value x, Value weight)> of;  // x (40, 16), weight (16, 16)
};
void PrintTo(const Layer& layer, std::ostream* out) { *out << layer.name; }

std::vector<Layer> layers() {
  return {
      {"doubled", [](Value x, Value) { return x + x * 0.5; }},
      {"products", [](Value x, Value) { return (x - 1) * (x + 1); }},
      {"silu", [](Value x, Value) { return x * sigmoid(x); }},
      {"transposed",
       [](Value x, Value) {
         return reshape(transpose(x, {1, 0}), {40, 16}) + x;
       }},
      {"one_row_to_all",
       [](Value x, Value) {
         return x + broadcast_to(slice(x, {0, 0}, {1, 16}), {40, 16});
       }},
      {"reversed", [](Value x, Value) { return reverse(x, {0}) + reverse(x, {1}); }},
      {"halves_exchanged",
       [](Value x, Value) {
         return concat(std::vector{slice(x, {0, 8}, {40, 16}), slice(x, {0, 0}, {40, 8})}, 1) * x;
       }},
      {"gelu", [](Value x, Value w) { return gelu(matmul(x, w)); }},
      {"gelu_with_bias",
       [](Value x, Value w) {
         return gelu(matmul(x, w) + reshape(slice(w, {0, 0}, {1, 16}), {16}));
       }},
      {"gelu_of_sum", [](Value x, Value w) { return gelu(matmul(x, w) + x); }},
      {"skipped", [](Value x, Value w) { return x + matmul(tanh(matmul(x, w)), w); }},
      {"scaled_by_mean",
       [](Value x, Value) {
         return x * reshape(mean(x, {1}), {40, 1});
       }},
      {"mean_over_rows", [](Value x, Value) { return x + mean(x * x, {0}); }},
      {"where", [](Value x, Value) { return select(greater(x, 0 * x), x, x * 0.1); }},
      {"softmax", [](Value x, Value) { return softmax(x + reverse(x, {0}), 1); }},
  };
}

class DeepPrograms : public ::testing::TestWithParam<Layer> {};
INSTANTIATE_TEST_SUITE_P(Layers, DeepPrograms, ::testing::ValuesIn(layers()),
                         [](const auto& info) { return info.param.name; });

TEST_P(DeepPrograms, AreScheduled) {
  constexpr int depth = 40;
  const auto loss = [](std::span<const Value> in) {
    Value x = in[0];
    for (int i = 0; i < depth; ++i) {
      const Value weight = in[1 + static_cast<std::size_t>(i)];
      x = GetParam().of(x, weight) * reshape(slice(weight, {0, 0}, {1, 1}), {});  // equal layers would become a loop
    }
    return std::vector<Value>{mean(x)};
  };
  std::vector<ValueType> types(1 + depth, ValueType{DType::F32, {16, 16}});
  types[0] = {DType::F32, {40, 16}};
  std::vector<int> all(types.size());
  std::iota(all.begin(), all.end(), 0);
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  const kernel::Program program = schedule(*passes::optimize(*trace(value_and_grad(loss, all), types), {}), options);
  EXPECT_FALSE(program.body.empty());
}

// Compare and exchange, again and again: an addition asks what its terms are.
TEST(DeepPrograms, AlternativesOfAlternativesAreAdded) {
  const auto exchanged = [](std::span<const Value> in) {
    Value a = in[0], b = in[1];
    for (int i = 0; i < 60; ++i) {
      const Value is_less = less(a, b), lower = select(is_less, a, b);
      b = select(is_less, b, a);
      a = lower;
    }
    return std::vector<Value>{a + in[2], b + in[2]};
  };
  const std::vector<ValueType> types(3, ValueType{DType::F32, {40, 16}});
  EXPECT_FALSE(schedule(*passes::optimize(*trace(exchanged, types), {}), {}).body.empty());
}

// Each value is read twice by the next one.
Value doubled_again_and_again(Value x, bool is_linear) {
  constexpr int depth = 40;
  for (int i = 0; i < depth; ++i) {
    const Value turned = reverse(x, {0});
    if (is_linear)
      x = (i % 2 == 0 ? x + turned : x - turned) * 0.5;
    else
      x = i % 3 == 0 ? maximum(x, turned) * 0.7 : i % 3 == 1 ? x - turned * 0.5 : tanh(x + turned);
  }
  return x;
}

void expect_compiled(const Function& fn, const std::vector<ValueType>& types) {
  std::vector<Array> inputs;
  for (const ValueType& type : types)
    inputs.push_back(testing::normal_array(type.shape, type.dtype, static_cast<unsigned>(inputs.size())));
  const auto graph = trace(fn, types);
  const std::vector<Array> wanted = ir::evaluate(*graph, inputs);
  for (const int threads : {1, 2}) {
    CompileOptions options;
    options.threads = threads;
    const std::vector<Array> got = compile(graph, options)(inputs);
    for (std::size_t r = 0; r < wanted.size(); ++r)
      for (std::int64_t i = 0; i < wanted[r].size(); ++i)
        ASSERT_NEAR(got[r].at(i), wanted[r].at(i), 1e-9) << "result " << r << ", element " << i;
  }
}

// What lies nowhere is read twice by what follows, through borders, pieces of concatenations and places that are looked up.
TEST(DeepPrograms, WhatIsReadThroughViewsTwice) {
  constexpr int depth = 40;
  expect_compiled(
      [](std::span<const Value> in) {
        Value x = in[0];
        for (int i = 0; i < depth; ++i) {
          const std::int64_t n = x.shape()[0], low = 1 + i % 3, high = 1 + i * 7 % 5;
          const Value p = pad(x, constant(0, x.dtype()), {low}, {high}, {0});
          x = narrow(p, 0, 0, n) - narrow(p, 0, low + high, n) * 0.5;
        }
        return std::vector{x};
      },
      {{DType::F64, {200}}});
  expect_compiled(
      [](std::span<const Value> in) {
        Value x = in[0];
        for (int i = 0; i < depth; ++i) {
          const int axis = i % 2;
          const std::int64_t n = x.shape()[axis], by = 1 + i % (n - 1);
          x = concat(std::vector{narrow(x, axis, by, n - by), narrow(x, axis, 0, by)}, axis);
          x = i % 3 == 0 ? reverse(x, {axis}) : i % 3 == 1 ? transpose(x, {1, 0}) : x;
        }
        return std::vector{x};
      },
      {{DType::F64, {11, 13}}});
  expect_compiled(
      [](std::span<const Value> in) {
        Value place = cast(in[0], DType::I32), places = cast(in[1], DType::I32);
        for (int i = 0; i < depth; ++i) {
          Array table(DType::I32, {7 + i % 2, 8 + i % 3});
          for (std::int64_t k = 0; k < table.size(); ++k) table.set(k, static_cast<double>((k * 5 + i) % 7));
          const Value looked_up = constant(table);
          place = reshape(dynamic_slice(looked_up, std::vector{place, place}, {1, 1}), {});
          const Value flat = reshape(looked_up, {table.size()});
          places = gather(flat, places * static_cast<double>(table.shape()[1]) + places, 0);
        }
        return std::vector{place, places};
      },
      {{DType::F64, {}}, {DType::F64, {5}}});
}

// As many instructions a layer as in the layer before.
TEST(DeepPrograms, BordersAreComputedOnce) {
  const auto instructions = [](int depth) {
    const auto smoothed = [&](std::span<const Value> in) {
      Value x = in[0];
      for (int i = 0; i < depth; ++i) {
        const std::int64_t n = x.shape()[0];
        const Value p = pad(x, constant(-1, x.dtype()), {1}, {1}, {0});
        x = maximum(maximum(narrow(p, 0, 0, n), narrow(p, 0, 1, n)), narrow(p, 0, 2, n));
        x = narrow(x, 0, 0, n - 1);  // equal layers would become a loop
      }
      return std::vector{x};
    };
    std::size_t count = 0;
    const kernel::Program program =
        schedule(*passes::optimize(*trace(smoothed, std::vector<ValueType>{{DType::F32, {4096}}}), {}), {});
    kernel::for_each_statement(program.body, [&](const auto& statement) {
      if constexpr (std::is_same_v<std::decay_t<decltype(statement)>, kernel::Map>) count += statement.instrs.size();
    });
    return count;
  };
  EXPECT_LT(instructions(16), 3 * instructions(8));
}

const auto counted = [] { return cast(iota(DType::I32, {6}, 0), DType::F64) * 0.1; };

TEST(DeepPrograms, ALoopOfOneIterationBeginsWithLiterals) {
  expect_compiled(
      [](std::span<const Value> in) {
        const Value start[] = {doubled_again_and_again(counted(), false)};
        const ScanBody step = [](std::span<const Value> c, std::span<const Value> x) {
          return std::pair(std::vector{tanh(c[0] * 0.5 + x[0])}, std::vector<Value>{});
        };
        return scan(step, start, in.first(1)).first;
      },
      {{DType::F64, {1, 6}}});
}

// The sum of products that is deferred has a factor that is the same in every iteration, and so has what the loop emits.
TEST(DeepPrograms, LoopsHaveFactorsThatStayTheSame) {
  expect_compiled(
      [](std::span<const Value> in) {
        const Value start[] = {in[1], in[2]};
        const ScanBody step = [&](std::span<const Value> c, std::span<const Value> x) {
          const Value fixed = doubled_again_and_again(counted(), false);
          const Value product = dot(reshape(tanh(c[0]), {6, 1}), reshape(x[0], {1, 6}), {{1}, {0}});
          const Value next = tanh(c[0] * 0.5 + matmul(x[0], in[2]) + fixed);
          return std::pair(std::vector{next, c[1] + product * broadcast(fixed, {6, 6}, {1})},
                           std::vector{tanh(sum(next)) + sum(next * fixed) * 2.0});
        };
        auto [last, emitted] = scan(step, start, in.first(1));
        last.push_back(emitted[0]);
        return last;
      },
      {{DType::F64, {20, 6}}, {DType::F64, {6}}, {DType::F64, {6, 6}}});
}

TEST(DeepPrograms, SumsOfLinearFunctionsOfProductsAreDeferred) {
  expect_compiled(
      [](std::span<const Value> in) {
        const Value start[] = {in[1], in[2]};
        const ScanBody step = [&](std::span<const Value> c, std::span<const Value> x) {
          const Value product = dot(reshape(tanh(c[0]), {6, 1}), reshape(x[0], {1, 6}), {{1}, {0}});
          return std::pair(std::vector{tanh(c[0] * 0.5 + x[0]), c[1] + doubled_again_and_again(product, true)},
                           std::vector<Value>{});
        };
        return scan(step, start, in.first(1)).first;
      },
      {{DType::F64, {20, 6}}, {DType::F64, {6}}, {DType::F64, {6, 6}}});
}

// To batch a loop is to ask it in rounds where the batch axis is, and so those inside it.
TEST(DeepPrograms, LoopsInLoopsAreBatched) {
  ScanBody body = [](std::span<const Value> c, std::span<const Value>) {
    return std::pair(std::vector<Value>{c[1] * 0.5, c[0] + 1}, std::vector<Value>());
  };
  for (int depth = 0; depth < 30; ++depth)
    body = [inner = body](std::span<const Value> c, std::span<const Value>) {
      return std::pair(scan(inner, c, {}, {.length = 1}).first, std::vector<Value>());
    };
  const auto fn = [&](std::span<const Value> in) { return scan(body, in, {}, {.length = 1}).first; };
  // Both carries have the axis, since each becomes the other one.
  const auto graph = trace(vmap(fn, {0, -1}), std::vector<ValueType>{{DType::F32, {3}}, {DType::F32, {}}});
  const std::vector<Array> got =
      ir::evaluate(*graph, std::vector{Array::full(DType::F32, {3}, 4), Array::scalar(6.0F)});
  EXPECT_EQ(got[0].at(2), 3);
  EXPECT_EQ(got[1].at(2), 5);
}

}  // namespace
}  // namespace hotloop
