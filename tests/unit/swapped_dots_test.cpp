// Transposes of a product, or of slices of one, that only exchange its rows and columns: the product of the factors in the other order.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "arrays.h"
#include "hotloop/graph.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/train.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "passes/pipeline.h"
#include "user_cells.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;
constexpr DType f32 = DType::F32;
using Types = std::vector<ValueType>;

int count(const Graph& graph, ir::OpKind kind) {
  return static_cast<int>(std::ranges::count_if(graph.nodes(), [&](const auto& node) { return ir::is(*node, kind); }));
}

Function turned_parts() {
  return [](Values in) {
    const Value product = matmul(in[0], in[1]);  // (6, 20)
    return std::vector{transpose(slice(product, {0, 0}, {6, 5}), {1, 0}),
                       transpose(slice(product, {2, 5}, {6, 20}, {1, 3}), {1, 0}), tanh(transpose(product, {1, 0}))};
  };
}
const ValueType a{f32, {6, 7}}, b{f32, {7, 20}};

TEST(SwappedDots, OfSlicesThatAreAllTransposed) {
  const auto graph = passes::optimize(*trace(turned_parts(), Types{a, b}), {});
  EXPECT_EQ(count(*graph, ir::OpKind::Transpose), 0);
  EXPECT_EQ(count(*graph, ir::OpKind::Dot), 1);
}

TEST(SwappedDots, HaveTheSameBits) {
  const std::vector<Array> inputs = {testing::normal_array(a.shape, f32, 1), testing::normal_array(b.shape, f32, 2)};
  CompileOptions as_written;
  as_written.disabled_passes = {"simplify"};
  const auto program = trace(turned_parts(), Types{a, b});
  const std::vector<Array> expected = compile(program, as_written)(inputs), found = compile(program)(inputs);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(testing::same_bits(found[i], expected[i])) << i;
}

// Where a part is read as it lies as well, turning the product would only make others of its parts lie the wrong way.
TEST(SwappedDots, NotWhereAPartIsReadAsItLies) {
  const auto graph = passes::optimize(*trace(
                                          [](Values in) {
                                            const Value product = matmul(in[0], in[1]);
                                            const Value left = slice(product, {0, 0}, {6, 5});
                                            return std::vector{transpose(left, {1, 0}), tanh(left)};
                                          },
                                          Types{a, b}),
                                      {});
  EXPECT_EQ(count(*graph, ir::OpKind::Transpose), 1);
}

// The weights of gates lie side by side in one product, and their gradients are what an optimizer takes: as rows, like the weights.
TEST(SwappedDots, GradientsOfWeightsSideBySideLieAsTheWeights) {
  const nn::Sequential model(nn::Recurrent(testing::LayerNormLstmCell(6, 16)), nn::Last(), nn::Linear(16, 1));
  const Tree<Array> params = model.init(0, f32);
  const optim::Adam adam(1e-3);
  const ValueType x{f32, {8, 5, 6}}, y{f32, {8, 1}};
  const auto step = train::train_step(model, losses::MSE(), adam, params, adam.init(params), x, y);
  const auto graph = passes::optimize(*step.graph(), {});
  for (const auto& node : graph->nodes())
    EXPECT_FALSE(ir::is(*node, ir::OpKind::Transpose) && ir::is(*node->operands[0].node, ir::OpKind::Slice))
        << node->types[0].str();
}

}  // namespace
}  // namespace hotloop
