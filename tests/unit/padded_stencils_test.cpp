// Neighbours through padding: a slice of what was padded asks only for the ends that it reaches over, and each end is asked for once.
#include <gtest/gtest.h>

#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "op_checks.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"
#include "targets.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

constexpr std::int64_t N = 24;

Value moved(Value padded, std::int64_t row, std::int64_t column) {
  return slice(padded, {1 + row, 1 + column}, {1 + row + N, 1 + column + N}, {1, 1});
}

// Laplace's operator, plus what lies one step along the diagonal.
std::vector<Value> stencil(Values in) {
  const Value padded = pad(in[0], constant(0, in[0].dtype()), {1, 1}, {1, 1}, {0, 0});
  return {moved(padded, 1, 0) + moved(padded, -1, 0) + moved(padded, 0, 1) + moved(padded, 0, -1) +
          moved(padded, 1, 1) - 5.0 * in[0]};
}

int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

TEST(PaddedStencils, AskForAnEndOnce) {
  const std::vector<ValueType> types = {{DType::F32, {N, N}}};
  ScheduleOptions options;
  options.target = kernel::target_named("avx512");
  const std::string text = kernel::print(schedule(*passes::optimize(*trace(stencil, types), {}), options));
  // The first row, those inside and the last one are statements that ask for columns alone, two ends of them each.
  EXPECT_EQ(count(text, "map "), 3) << text;
  EXPECT_EQ(count(text, " lt bool") + count(text, " ge bool"), 3 * 2) << text;
  EXPECT_EQ(count(text, "index i64"), 0) << text;
}

TEST(PaddedStencils, AreWhatTheInterpreterSays) {
  Array x(DType::F32, {N, N});
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>((i * 7919) % 97) / 9 - 4);
  const std::vector<Array> inputs = {x};
  CompileOptions interpreted;
  interpreted.backend = "interp";
  const Array expected = compile(trace(stencil, std::vector<ValueType>{x.type()}), interpreted)(inputs)[0];
  const Array got = jit(stencil)(inputs)[0];
  for (std::int64_t i = 0; i < x.size(); ++i)
    EXPECT_FLOAT_EQ(static_cast<float>(got.at(i)), static_cast<float>(expected.at(i)));
}

// Whole vectors of what is added lie pages away from the operand, where there may be no memory: along the rows that fill vectors, across them, and
// where a shift is known only at run time.
TEST(PaddedArrays, ReachFarBeyondTheirOperand) {
  const Function far = [](Values in) {
    const Value zero = constant(0, DType::F32), n = cast(reduce_max(in[1], {0}), DType::I32);
    const Value line = pad(in[1], constant(7, DType::F32), {9000}, {20001}, {0});
    const std::vector<Value> start{n};
    return std::vector{line, pad(in[0], zero, {200, 33}, {1, 0}, {0, 0}), dynamic_slice(line, start, {4000}),
                       pad(less(in[1], 0.5), constant(1, DType::Bool), {70000}, {3}, {0})};
  };
  for (const std::string& target : kernel::runnable_targets()) {
    std::vector<Array> inputs{Array(DType::F32, {N, N}), Array(DType::F32, {101})};
    for (Array& x : inputs)
      for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>((i * 7919) % 9001));
    CompileOptions interpreted, compiled;
    interpreted.backend = "interp";
    compiled.target = target;
    const auto expected = jit(far, interpreted)(inputs), got = jit(far, compiled)(inputs);
    for (std::size_t r = 0; r < got.size(); ++r) EXPECT_TRUE(ir::close(got[r], expected[r], 0)) << target << " " << r;
  }
}

}  // namespace
}  // namespace hotloop
