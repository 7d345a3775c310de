// Products that sum nothing: part of the elementwise work that reads them, unless they are terms of a sum of products.
#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "passes/pipeline.h"
#include "schedule/accesses.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;
constexpr DType f32 = DType::F32;

struct Counts {
  int dots = 0, maps = 0;
};

Counts counts_of(const Function& f, const std::vector<ValueType>& types) {
  const kernel::Program program = schedule(*passes::optimize(*trace(f, types), {}), {});
  Counts counts;
  for_each_statement(program.body, [&](const auto& statement) {
    using Kind = std::decay_t<decltype(statement)>;
    counts.dots += std::is_same_v<Kind, kernel::Dot>;
    counts.maps += std::is_same_v<Kind, kernel::Map>;
  });
  return counts;
}

// w - 0.1 (x g^T): the matrix of the gradient is not made.
TEST(OuterProducts, AStepOnOneSampleIsOneMap) {
  const Function step = [](Values in) { return std::vector<Value>{in[2] - 0.1 * matmul(in[0], in[1])}; };
  const Counts counts = counts_of(step, {{f32, {8, 1}}, {f32, {1, 32}}, {f32, {8, 32}}});
  EXPECT_EQ(counts.dots, 0);
  EXPECT_EQ(counts.maps, 1);
}

// Transposed, in a batch and read twice.
TEST(OuterProducts, WhateverTheOrderOfAxes) {
  const Function step = [](Values in) {
    const Value outer = matmul(in[0], in[1]);
    return std::vector<Value>{in[2] - transpose(outer, {0, 2, 1}) * 0.5, tanh(outer)};
  };
  EXPECT_EQ(counts_of(step, {{f32, {3, 8, 1}}, {f32, {3, 1, 32}}, {f32, {3, 32, 8}}}).dots, 0);
}

// A layer of one feature: its product starts from the bias and stays the first term of a sum, with the bits of any other layer.
TEST(OuterProducts, TermsOfASumStayProducts) {
  const Function layer = [](Values in) {
    return std::vector<Value>{tanh(matmul(in[0], in[1]) + broadcast(in[2], {8, 32}, {1}))};
  };
  EXPECT_EQ(counts_of(layer, {{f32, {8, 1}}, {f32, {1, 32}}, {f32, {32}}}).dots, 1);
}

}  // namespace
}  // namespace hotloop
