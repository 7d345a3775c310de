// What is computed from the results of reductions is computed by the statement that reduces, where it is cheap and of the same dtype, to the same bits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "arrays.h"
#include "hotloop/hotloop.h"
#include "ir/op_def.h"
#include "targets.h"

namespace hotloop {
namespace {

constexpr std::int64_t width = 40;

struct Case {
  std::string name;
  int num_maps;
  TracedFunction finish;  // of the sum, the sum of squares and the largest number of each row
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Value> reduced(std::span<const Value> in) {
  return {reduce_sum(in[0], {1}), reduce_sum(square(in[0]), {1}), reduce_max(in[0], {1})};
}

class Finish : public ::testing::TestWithParam<Case> {};

TEST_P(Finish, IsOneStatementWithTheReductionsAndHasTheirBits) {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const std::int64_t rows : {1, 5, 16, 37}) {
      const std::vector<ValueType> types = {{dtype, {rows, width}}};
      const std::vector<Array> x = {testing::normal_array(types[0].shape, dtype, 7)};
      const auto whole = trace(
          [&](std::span<const Value> in) {
            const std::vector<Value> sums = reduced(in);
            return GetParam().finish(sums);
          },
          types);
      const std::vector<ValueType> row_types(3, {dtype, {rows}});
      const auto after = trace(GetParam().finish, row_types);
      for (const char* backend : {"llvm", "c"})
        for (const std::string& target : kernel::runnable_targets())
          for (const bool any_rows : {false, true}) {
            if (std::string(backend) == "c" && (rows != 5 || any_rows)) continue;  // which a C compiler takes long for
            SCOPED_TRACE(GetParam().name + " " + std::string(name_of(dtype)) + " rows " + std::to_string(rows) + " " +
                         backend + " " + target + (any_rows ? ", any number of rows" : ""));
            CompileOptions options;
            options.backend = backend;
            options.target = target;
            if (any_rows) options.batch_axes = {0};
            const Executable run = compile(whole, options);
            // Additions, divisions and square roots are exact to the rounding: only the sums have an order.
            const std::vector<Array> sums = compile(trace(reduced, types), options)(x);
            const std::vector<Array> want = ir::evaluate(*after, sums), got = run(x);
            for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(testing::same_bits(got[i], want[i])) << i;
            KernelHistory::start();
            run(x);
            const auto records = KernelHistory::stop();
            ASSERT_EQ(records.size(), 1u);
            EXPECT_EQ(records[0].num_maps, GetParam().num_maps) << run.kernel_text();
          }
    }
}

Value number(double value, Value like) { return constant(value, like.dtype(), like.shape()); }

INSTANTIATE_TEST_SUITE_P(
    All, Finish,
    ::testing::Values(Case{"moments", 1,
                           [](std::span<const Value> r) -> std::vector<Value> {
                             const Value deviation = sqrt(r[1] / 40.0 + 1e-5);
                             return {r[0] / 40.0, deviation, 1.0 / deviation, r[2]};
                           }},
                      // Of which the sums themselves are not wanted, and numbers are chosen by a comparison.
                      Case{"choice", 1,
                           [](std::span<const Value> r) -> std::vector<Value> {
                             return {select(less(r[0], r[2]), r[1] - r[0], number(2, r[0]) * r[2])};
                           }},
                      // What is dear is done by whole vectors, in a map of its own.
                      Case{"exponential", 2,
                           [](std::span<const Value> r) -> std::vector<Value> {
                             return {exp(number(0, r[0]) * r[0]) + r[2]};
                           }}),
    [](const auto& info) { return info.param.name; });

// A wider dtype after a sum would halve its lanes, and with them change its order.
TEST(FinishOrder, IsThatOfTheSumsAlone) {
  const std::vector<ValueType> types = {{DType::F32, {6, 403}}};
  const std::vector<Array> x = {testing::normal_array(types[0].shape, DType::F32, 3)};
  const auto alone = trace([](std::span<const Value> in) { return std::vector<Value>{reduce_sum(in[0], {1})}; }, types);
  const auto widened = trace(
      [](std::span<const Value> in) {
        const Value sum = reduce_sum(in[0], {1});
        return std::vector<Value>{sum, cast(sum, DType::F64) * 2.0, sum + cast(iota(DType::I64, {6}, 0), DType::F32)};
      },
      types);
  EXPECT_TRUE(testing::same_bits(compile(alone)(x)[0], compile(widened)(x)[0]));
}

// Whole vectors of results, of the rows of a batch of any number too.
TEST(FinishLanes, AreFilledWhateverTheNumberOfRows) {
  const std::vector<ValueType> types = {{DType::F32, {64, width}}};
  const auto graph =
      trace([](std::span<const Value> in) { return std::vector<Value>{sqrt(reduce_sum(square(in[0]), {1}))}; }, types);
  for (const bool any_rows : {false, true}) {
    CompileOptions options;
    options.keep_source = true;
    if (any_rows) options.batch_axes = {0};
    const std::string source = compile(graph, options).source();
    EXPECT_NE(source.find("call <16 x float> @llvm.sqrt"), std::string::npos) << source;
  }
}

}  // namespace
}  // namespace hotloop
