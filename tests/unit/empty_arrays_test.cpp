// Arrays without elements pass through programs as others do.
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

Array none(const Shape& shape) { return Array(DType::F32, shape); }

TEST(EmptyArrays, AreReshapedBesideWhatTheyAreReshapedFrom) {
  const auto both = [](const Shape& to) {
    return [to](Values in) {
      const Value y = exp(in[0]);
      return std::vector<Value>{y, reshape(y, to)};
    };
  };
  for (const auto& [from, to] : std::vector<std::pair<Shape, Shape>>{
           {{0, 1}, {0}}, {{0}, {0, 1}}, {{0, 6}, {0, 3, 2}}, {{0, 6}, {4, 0}}, {{1, 0, 1}, {0}}}) {
    const std::vector<Array> results = jit(both(to))({none(from)});
    EXPECT_EQ(results[0].shape(), from);
    EXPECT_EQ(results[1].shape(), to);
  }
}

TEST(EmptyArrays, HaveSumsAndGradients) {
  const auto loss = [](Values in) { return std::vector<Value>{sum(matmul(tanh(in[0]), in[1]))}; };
  const std::vector<Array> results =
      jit(value_and_grad(loss, {0, 1}))({none({0, 3}), Array::full(DType::F32, {3, 2}, 1)});
  EXPECT_EQ(results[0].at(0), 0);
  EXPECT_EQ(results[1].shape(), (Shape{0, 3}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(results[2].at(i), 0);
}

}  // namespace
}  // namespace hotloop
