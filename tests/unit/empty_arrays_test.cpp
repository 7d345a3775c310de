// Arrays without elements pass through programs as others do.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/sorting.h"
#include "hotloop/transforms.h"
#include "op_checks.h"

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

// The memory of no steps was made room for without end.
TEST(EmptyArrays, LoopsOfNoStepsGiveWhatTheyStartFrom) {
  const auto run = [](Values in) {
    const auto step = [&](Values c, Values x) {
      const Value next = x.empty() ? c[0] * in[0] : c[0] * in[0] + x[0];
      return std::pair(std::vector<Value>{next}, std::vector<Value>{tanh(next)});
    };
    const std::vector<Value> start = {in[1]}, xs = {in[2]};
    auto [carry, ys] = scan(step, start, {}, {.length = 0});
    auto [again, more] = scan(step, carry, xs, {});
    return std::vector<Value>{again[0], concat(std::vector<Value>{ys[0], more[0]}, 0)};
  };
  for (const Shape& shape : {Shape{}, Shape{3}}) {
    const std::vector<Array> in = {Array::full(DType::F32, {}, 2), Array::full(DType::F32, shape, 5),
                                   none(shape.with_inserted(0, 0))};
    const std::vector<Array> results = jit(run)(in);
    EXPECT_EQ(results[0].at(0), 5);
    EXPECT_EQ(results[1].shape(), shape.with_inserted(0, 0));
    const auto loss = [&](Values v) { return std::vector<Value>{sum(run(v)[0])}; };
    const std::vector<Array> slopes = jit(grad(loss, {0, 1}))(in);
    EXPECT_EQ(slopes[0].at(0), 0);
    EXPECT_EQ(slopes[1].at(0), 1);
  }
}

// Whether or not a pass finds that nothing is left of a loop or a sum.
TEST(EmptyArrays, AreScheduledWithoutPassesToo) {
  const TracedFunction sum_after_no_step = [](Values in) {
    const std::vector<Value> start = {in[0]};
    const ScanBody step = [&](Values carry, Values) {
      return std::pair{std::vector<Value>{tanh(carry[0] * in[1])}, std::vector<Value>{}};
    };
    const Value last = scan(step, start, {}, {.length = 0}).first[0];
    return std::vector<Value>{matmul(transpose(last, {1, 0}), in[1]), sum(last, {0})};
  };
  const TracedFunction loops_over_rows_of_nothing = vmap(
      [](Values in) {
        const std::vector<Value> start = {in[0], constant(0, DType::I32)};
        const auto goes_on = [](Values carry) {
          return bit_and(less(carry[1], 5.0), less(reduce_prod(carry[0], {0}), 3.0));
        };
        const auto step = [](Values carry) {
          const Value shrunk = carry[0] - 0.1 * sum(carry[0] * carry[0]) * carry[0];
          return std::vector<Value>{shrunk, carry[1] + cast(reduce_prod(carry[0] + 7.0, {0}), DType::I32)};
        };
        return while_loop(goes_on, step, start, 20);
      },
      {0});
  const Array x = Array::full(DType::F32, {384, 16}, 0.5);
  for (const auto& [fn, in] : std::vector<std::pair<TracedFunction, std::vector<Array>>>{
           {sum_after_no_step, {x, x}}, {loops_over_rows_of_nothing, {none({50, 0})}}})
    for (const std::vector<std::string>& disabled :
         std::vector<std::vector<std::string>>{{}, {"inline_loops"}, {"all"}}) {
      CompileOptions compiled, interpreted;
      compiled.disabled_passes = interpreted.disabled_passes = disabled;
      interpreted.backend = "interp";
      const std::vector<Array> expected = jit(fn, interpreted)(in), found = jit(fn, compiled)(in);
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(ir::close(found[i], expected[i], 1e-5)) << i;
    }
}

// No index is the last one of none.
TEST(EmptyArrays, HaveNoPositions) {
  for (const DType dtype : {DType::U32, DType::I32, DType::I64, DType::F32})
    EXPECT_EQ(jit([=](Values) { return std::vector{iota(dtype, {0}, 0)}; })({})[0].shape(), Shape{0});
  const auto sorted = [](Values in) {
    return std::vector{argsort(in[0], 0), sort(in[0], 0), top_k(in[0], 0, 0).first};
  };
  for (const Array& result : jit(sorted)({none({0, 3})})) EXPECT_EQ(result.shape(), (Shape{0, 3}));
}

}  // namespace
}  // namespace hotloop
