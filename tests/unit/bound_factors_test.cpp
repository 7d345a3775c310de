// Bound factors of dots lie as the target's dots read them (schedule/bound_factors.h), and give the bits that they give unbound.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arrays.h"
#include "bf16_roundings.h"
#include "compiled.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"

namespace hotloop {
namespace {

using testing::Compiled;
using testing::normal_array;
using testing::same_bits;

struct Precision {
  DType dtype;
  std::string dot_precision;
};
const std::vector<Precision> precisions = {{DType::F32, "f32"}, {DType::F64, "f32"}, {DType::F32, "bf16"}};

struct Shapes {
  std::int64_t rows, k, n;
};
// Steps of odd and even numbers and of less than a block; columns of whole panels, of one, of part of one, of too few; rows that fill vectors better than
// columns do, so that these are read as rows.
const std::vector<Shapes> shapes = {{1, 7, 16},   {1, 33, 48},   {2, 64, 100}, {3, 20, 33},
                                    {1, 12, 256}, {17, 16, 160}, {16, 64, 40}, {32, 24, 33},
                                    {1, 2, 512},  {5, 40, 10},   {4, 1, 64},   {40, 129, 208}};

class BoundFactors : public ::testing::TestWithParam<Compiled> {
 protected:
  CompileOptions options(const Precision& precision) const {
    CompileOptions o = GetParam().options();
    o.dot_precision = precision.dot_precision;
    return o;
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, BoundFactors, ::testing::ValuesIn(testing::with_blocks(testing::all_compiled())),
                         [](const auto& info) { return testing::name_of_case(info.param); });

std::shared_ptr<const Graph> product(const ValueType& x, const ValueType& w) {
  return trace([](std::span<const Value> in) { return std::vector<Value>{matmul(in[0], in[1])}; },
               std::vector<ValueType>{x, w});
}

using Function = std::function<Value(std::span<const Value>)>;

// f(x, W...) with bound W.
void expect_bits_of_unbound(const Function& f, const Array& x, const std::vector<Array>& weights,
                            const CompileOptions& options) {
  std::vector<ValueType> types = {x.type()};
  std::vector<Array> all = {x}, bound = {Array()};
  for (const Array& w : weights) {
    types.push_back(w.type());
    all.push_back(w);
    bound.push_back(w);
  }
  const auto graph = trace([&](std::span<const Value> in) { return std::vector<Value>{f(in)}; }, types);
  const Array expected = compile(graph, options)(all)[0];
  const Array got = compile_bound(graph, bound, options)(std::vector<Array>{x})[0];
  EXPECT_TRUE(same_bits(got, expected));
}

TEST_P(BoundFactors, GiveTheBitsOfUnboundOnes) {
  for (const Precision& precision : precisions)
    for (const auto& [rows, k, n] : shapes) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(k) + " x " + std::to_string(n) + " of " +
                   std::string(name_of(precision.dtype)) + ", " + precision.dot_precision);
      const Array x = normal_array({rows, k}, precision.dtype, 1), w = normal_array({k, n}, precision.dtype, 2);
      const CompileOptions o = options(precision);
      expect_bits_of_unbound([](auto in) { return matmul(in[0], in[1]); }, x, {w}, o);
      const Array turned = normal_array({n, k}, precision.dtype, 2);
      expect_bits_of_unbound([](auto in) { return matmul(in[0], transpose(in[1], {1, 0})); }, x, {turned}, o);
    }
}

// One reads it as it lies for dots, the other one element by element, or both in dots of different kinds.
TEST_P(BoundFactors, MayBeReadInSeveralWays) {
  for (const Precision& precision : precisions) {
    SCOPED_TRACE(std::string(name_of(precision.dtype)) + ", " + precision.dot_precision);
    const CompileOptions o = options(precision);
    const Array x = normal_array({16, 40}, precision.dtype, 1), w = normal_array({40, 200}, precision.dtype, 2),
                v = normal_array({200, 40}, precision.dtype, 3);
    expect_bits_of_unbound([](auto in) { return add(matmul(tanh(in[0]), in[1]), reduce_sum(in[1], {0})); }, x, {w}, o);
    expect_bits_of_unbound([](auto in) { return matmul(matmul(in[0], in[1]), transpose(in[1], {1, 0})); }, x, {w}, o);
    expect_bits_of_unbound([](auto in) { return matmul(tanh(matmul(in[0], in[1])), in[2]); }, x, {w, v}, o);
  }
}

TEST_P(BoundFactors, AreRoundedAsOthersAre) {
  const auto given = testing::bf16_roundings();
  for (const std::int64_t place : {0, 1}) {  // the upper half of a pair, and the lower one
    Array w = Array::zeros(DType::F32, {2, 48}), x = Array::zeros(DType::F32, {1, 2});
    for (std::size_t i = 0; i < given.size(); ++i) w.set(place * 48 + static_cast<std::int64_t>(i), given[i].given);
    x.set(place, 1.0);
    const auto graph = product(x.type(), w.type());
    const Array got =
        compile_bound(graph, std::vector<Array>{Array(), w}, options({DType::F32, "bf16"}))(std::vector<Array>{x})[0];
    for (std::size_t i = 0; i < given.size(); ++i) given[i].expect(got.at(static_cast<std::int64_t>(i)));
  }
}

TEST_P(BoundFactors, AreReboundInTheirLayout) {
  for (const Precision& precision : precisions) {
    const Array x = normal_array({2, 30}, precision.dtype, 1), w = normal_array({30, 144}, precision.dtype, 2),
                other = normal_array({30, 144}, precision.dtype, 3);
    const auto graph = product(x.type(), w.type());
    const CompileOptions o = options(precision);
    const Executable first = compile_bound(graph, std::vector<Array>{Array(), w}, o);
    const Array got = rebind(first, std::vector<Array>{other})(std::vector<Array>{x})[0];
    const Array expected = compile_bound(graph, std::vector<Array>{Array(), other}, o)(std::vector<Array>{x})[0];
    EXPECT_TRUE(same_bits(got, expected));
  }
}

// A step reads pairs: nothing of the weights is rounded, paired or packed in a call.
TEST(BoundPairs, AreMadeOnce) {
  for (const Compiled& compiled : testing::with_blocks(testing::llvm_targets()))
    for (const std::int64_t n : {48, 64, 100, 512}) {
      SCOPED_TRACE(testing::name_of_case(compiled) + ", " + std::to_string(n) + " columns");
      CompileOptions o = compiled.options();
      o.dot_precision = "bf16";
      const Array w = normal_array({70, n}, DType::F32, 2);
      const auto graph = product({DType::F32, {1, 70}}, w.type());
      const std::string text = compile_bound(graph, std::vector<Array>{Array(), w}, o).kernel_text();
      const std::string in_blocks = compiled.target == "amx" ? " in blocks" : "";
      EXPECT_NE(text.find("of pairs" + in_blocks + " m 1, n " + std::to_string(n)), std::string::npos) << text;
      EXPECT_NE(text.find("argument 1: u32["), std::string::npos) << text;
      EXPECT_EQ(text.find("map pairs"), text.rfind("map pairs")) << text;  // those of x
      EXPECT_EQ(text.find("pack u32"), std::string::npos) << text;
      EXPECT_EQ(text.find("map plain"), std::string::npos) << text;
      EXPECT_EQ(text.find("buffer plain"), std::string::npos) << text;
    }
}

// A product of all rows of a batch, and one without it, whose 16 rows fill vectors better than its 40 columns: these are read as rows, of the plain matrix.
TEST_P(BoundFactors, ArePlainWhereTheirColumnsAreRows) {
  const auto graph = trace(
      [](std::span<const Value> in) {
        return std::vector<Value>{matmul(in[0], in[2]), matmul(in[1], in[2])};
      },
      std::vector<ValueType>{{DType::F32, {20, 64}}, {DType::F32, {16, 64}}, {DType::F32, {64, 40}}});
  const std::vector<Array> x = {normal_array({20, 64}, DType::F32, 1), normal_array({16, 64}, DType::F32, 2)};
  const Array w = normal_array({64, 40}, DType::F32, 3);
  CompileOptions o = options({DType::F32, "bf16"});
  o.batch_axes = {0, -1, -1};
  const std::vector<Array> expected = compile(graph, o)(std::vector<Array>{x[0], x[1], w});
  for (const int threads : {1, 2}) {
    o.threads = threads;
    const Executable bound = compile_bound(graph, std::vector<Array>{Array(), Array(), w}, o);
    EXPECT_NE(bound.kernel_text().find("map plain"), std::string::npos) << bound.kernel_text();
    const std::vector<Array> got = bound(x);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], expected[i])) << threads << " threads, " << i;
  }
}

}  // namespace
}  // namespace hotloop
