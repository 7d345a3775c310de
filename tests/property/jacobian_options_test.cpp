// What jacobian() says, how long it may look for zeros, what it refuses, and what it does beside numbers that are not finite.
#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "jacobian_cases.h"

namespace hotloop::testing {
namespace {

Value laplace(Value u) {  // with zero ends
  const Value zero = like(u, 0);
  return pad(narrow(u, 0, 1, u.shape()[0] - 1), zero, {0}, {1}) +
         pad(narrow(u, 0, 0, u.shape()[0] - 1), zero, {1}, {0}) - 2.0 * u;
}

// explain() is read in a terminal.
TEST(JacobianExplain, FitsInto80Columns) {
  const auto longest = [](const Function& fn, const std::vector<ValueType>& types, const JacobianOptions& options) {
    std::size_t width = 0;
    trace(
        [&](Values v) {
          const Jacobian j = jacobian(fn, options)(v);
          std::istringstream lines(j.explain());
          for (std::string line; std::getline(lines, line);) width = std::max(width, line.size());
          return std::vector{j.values()};
        },
        types);
    return width;
  };
  JacobianOptions short_of_steps;
  short_of_steps.max_detection_steps = 10;
  const Function each = [](Values v) { return std::vector{sin(v[0])}; };
  const Function stencil = [](Values v) { return std::vector{laplace(v[0])}; };
  EXPECT_LE(longest(each, {f64({100, 20, 30})}, {}), 80u);
  EXPECT_LE(longest(vmap(stencil, {0}), {f64({1000, 50})}, {}), 80u);
  EXPECT_LE(longest(stencil, {f64({50})}, short_of_steps), 80u);
}

// What is zero by structure stays zero beside infinities and NaN, which stay where they belong.
TEST(JacobianNonFinite, StaysInItsPlace) {
  const Function fn = [](Values v) { return std::vector{square(v[0]) * v[1]}; };
  const double inf = std::numeric_limits<double>::infinity();
  const Arrays at{Array::from(std::vector{inf, 2.0, 3.0}, Shape{3}),
                  Array::from(std::vector{1.0, std::nan(""), 1.0}, Shape{3})};
  const Function all = [&](Values v) {
    const Jacobian j = jacobian(fn)(v);
    return std::vector{j.dense(), j.diagonal()};
  };
  for (const Arrays& got : {evaluate(all, at), jit(all)(at)}) {
    EXPECT_EQ(got[1].at(0), inf);
    EXPECT_TRUE(std::isnan(got[1].at(1)));
    EXPECT_EQ(got[1].at(2), 6);
    for (std::int64_t i = 0; i < 9; ++i) {
      if (i % 4 != 0) {
        EXPECT_EQ(got[0].at(i), 0) << i;
      }
    }
  }
}

TEST(JacobianOptions, DetectionThatTakesTooLongIsLeftOutAndSaid) {
  const Function stencil = [](Values v) { return std::vector{laplace(v[0])}; };
  JacobianOptions options;
  options.max_detection_steps = 10;
  trace(
      [&](Values v) {
        const Jacobian j = jacobian(stencil, options)(v);
        EXPECT_FALSE(j.structure().sparse);
        EXPECT_NE(j.explain().find("max_detection_steps"), std::string::npos) << j.explain();
        return std::vector{j.values()};
      },
      std::vector{f64({50})});
}

TEST(JacobianOptions, DetectionInsideABatchDoesNotGrowWithIt) {
  // A hundred thousand rows: index sets along the batch would take a thousand times the steps allowed.
  const Function fn = [](Values v) { return std::vector{matmul(windows(v[0], 1, 3), v[1])}; };
  JacobianOptions options;
  options.max_detection_steps = 2000;
  trace(
      [&](Values v) {
        const Jacobian j = jacobian(fn, options)(v);
        EXPECT_TRUE(j.structure().sparse);
        EXPECT_EQ(j.structure().forward_passes, 3);
        return std::vector{j.values()};
      },
      std::vector{f64({100000, 12}), f64({3})});
}

// The last layer's value is not needed for its derivative: a pass must not look as if it cost nothing.
TEST(JacobianOptions, WhatDenseWouldCostIsItsPasses) {
  constexpr std::int64_t N = 100;
  const Function net = [](Values v) { return std::vector{matmul(tanh(matmul(v[0], v[1])), v[2])}; };
  trace(
      [&](Values v) {
        const Jacobian j = jacobian(net)(v);
        const JacobianStructure& s = j.structure();
        EXPECT_EQ(s.forward_passes, 1);
        const double products = 2.0 * N * (20 + 20 * 400);  // multiplications and additions of one pass
        EXPECT_GT(s.flops, 1.9 * products) << j.explain();  // the value and one tangent
        EXPECT_LT(s.flops, 3 * products) << j.explain();
        EXPECT_GT(s.dense_flops, N * products) << j.explain();
        return std::vector{j.values()};
      },
      std::vector{f64({N, 1}), f64({1, 20}), f64({20, 400})});
}

TEST(JacobianMemory, DenseThatDoesNotFitSaysItsSizeAndOffersWhatDoes) {
  const Function fn = [](Values v) { return std::vector{tanh(matmul(v[0], v[1]))}; };
  JacobianOptions options;
  options.max_bytes = 100'000'000;
  try {
    trace([&](Values v) { return std::vector{jacobian(fn, options)(v).dense()}; },
          std::vector{ValueType{DType::F32, {1000, 1}}, ValueType{DType::F32, {1, 400}}});
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_STREQ(
        error.what(),
        "[jacobian] dense() must fit into 100 MB of memory. Received: f32[1000,400,1000,1], 1.6 GB. Try: blocks() "
        "(f32[1000,400,1], 1.6 MB), matvec() and rmatvec(), or a part of the output at a time.");
  }
}

}  // namespace
}  // namespace hotloop::testing
