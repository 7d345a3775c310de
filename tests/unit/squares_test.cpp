// Statements that read or write across the rows of memory: squares of numbers are turned, also at the edges, and nothing changes but the time.
#include <gtest/gtest.h>

#include <cstring>

#include "compiled.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "op_checks.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

Array numbers(DType dtype, const Shape& shape, int seed) {
  Array a(dtype, shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, static_cast<double>((i * 7919 + seed * 104729) % 997 - 400));
  return a;
}

void expect_oracle(const TracedFunction& fn, const std::vector<Array>& inputs) {
  const auto graph = trace(fn, ir::types_of(inputs));
  const auto oracle = ir::evaluate(*graph, inputs);
  for (const std::string& target : kernel::runnable_targets()) {
    CompileOptions options;
    options.target = target;
    const auto got = compile(graph, options)(inputs);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(std::memcmp(got[i].raw(), oracle[i].raw(), got[i].bytes()), 0)
          << target << ", " << inputs[0].type().str() << ", output " << i;
  }
}

TEST(Squares, AreTurnedWhateverTheirEdges) {
  for (const DType dtype : {DType::F32, DType::F64, DType::I32})
    for (const std::int64_t rows : {16, 21, 40})
      for (const std::int64_t columns : {4, 7, 16, 37}) {
        const auto fn = [](Values in) {
          const Value turned = transpose(in[0], {1, 0});
          return std::vector<Value>{turned + in[1] * in[2], transpose(in[1] - in[2], {1, 0})};
        };
        expect_oracle(fn, {numbers(dtype, {rows, columns}, 1), numbers(dtype, {columns, rows}, 2),
                           numbers(dtype, {columns, rows}, 3)});
      }
}

// Rows that lie anywhere, some of them twice.
TEST(Squares, RowsThatAreLookedUpAreTurned) {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const std::int64_t rows : {16, 21, 40})
      for (const std::int64_t columns : {4, 7, 16, 37}) {
        const auto fn = [](Values in) {
          return std::vector<Value>{transpose(gather(in[0], in[1], 0), {1, 0}) * in[2]};
        };
        Array places(DType::I32, {rows});
        for (std::int64_t i = 0; i < rows; ++i) places.set(i, static_cast<double>(i * 31 % 23));
        const std::vector<Array> inputs = {numbers(dtype, {23, columns}, 1), places,
                                           numbers(dtype, {columns, rows}, 2)};
        expect_oracle(fn, inputs);
        CompileOptions options;
        options.keep_source = true;
        const auto program = compile(trace(fn, ir::types_of(inputs)), options);
        if (rows == 40 && columns == 16) EXPECT_NE(program.source().find("@square"), std::string::npos);  // full ones
      }
}

// Rows of 40 numbers of 23 samples that a loop leaves side by side: sums over lanes, each by itself.
TEST(Squares, SumsOfRowsSideBySideKeepTheirOrder) {
  for (const std::int64_t columns : {9, 16, 40}) {
    const auto one = [](Values in) {
      const auto step = [](Values c, Values x) {
        const Value next = 0.5 * c[0] + x[0];
        return std::pair(std::vector<Value>{next}, std::vector<Value>{next});
      };
      const Value row = scan(step, std::vector<Value>{constant(0, in[0].dtype())}, std::vector<Value>{in[0]}).second[0];
      return std::vector<Value>{sum(row * row), reduce_max(row, {0}), sum(row + 1.0)};
    };
    const std::vector<Array> all = {numbers(DType::F32, {150, columns}, 5)};
    const auto whole = compile(trace(vmap(one, {0}), ir::types_of(all)))(all);
    for (const std::int64_t rows : {1, 16, 23}) {
      const std::vector<Array> few = {numbers(DType::F32, {rows, columns}, 5)};
      const auto part = compile(trace(vmap(one, {0}), ir::types_of(few)))(few);
      for (std::size_t i = 0; i < part.size(); ++i)
        EXPECT_EQ(std::memcmp(part[i].raw(), whole[i].raw(), part[i].bytes()), 0) << rows << " rows, output " << i;
    }
  }
}

}  // namespace
}  // namespace hotloop
