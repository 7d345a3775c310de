#include <algorithm>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/batching.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {

Value transpose(Value x, const std::vector<std::int64_t>& permutation) {
  ir::require_defined("transpose", {&x, 1});
  if (permutation == ir::iota_axes(x.rank())) return x;
  return ir::append_op("transpose", {x}, {{"permutation", permutation}});
}

namespace ir {
namespace {

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType& x = c.operands[0];
  const auto& permutation = c.attrs.integers("permutation");
  std::vector<std::int64_t> sorted = permutation;
  std::ranges::sort(sorted);
  if (sorted != iota_axes(x.shape.rank()))
    throw UserError(
        "transpose", "the permutation must name each axis of the operand once",
        Shape(std::span(permutation).first(std::min<std::size_t>(permutation.size(), Shape::max_rank))).str() +
            " for " + x.str(),
        x.shape.rank() == 0 ? "" : "the axes 0 to " + std::to_string(x.shape.rank() - 1) + " in their new order");
  Shape shape;
  for (std::int64_t axis : permutation) shape.push_back(x.shape[static_cast<int>(axis)]);
  return {{x.dtype, shape}};
}

std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& permutation) {
  std::vector<std::int64_t> result(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i)
    result[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
  return result;
}

}  // namespace

std::vector<OpDef> ops_transpose() {
  OpDef def = movement_op("transpose", "axes in another order: axis i of the result is axis permutation[i] of x",
                          OpKind::Transpose);
  def.infer = infer;
  def.eval = [](const EvalContext& c) {
    const auto& permutation = c.node.attrs.integers("permutation");
    const auto strides = strides_of(c.operands[0].shape());
    return std::vector<Array>{rearranged(c.operands[0], c.node.types[0].shape, [&](const Index& index) {
      std::int64_t flat = 0;
      for (std::size_t i = 0; i < index.size(); ++i)
        flat += index[i] * strides[static_cast<std::size_t>(permutation[i])];
      return flat;
    })};
  };
  def.axes = [](const Node& node) {
    std::vector<AxisLink> links;
    for (const std::int64_t from : node.attrs.integers("permutation"))
      links.push_back({0, static_cast<int>(from), static_cast<int>(links.size())});
    return links;
  };
  def.transpose = transpose_of_one(
      [](Value ct, const TransposeContext& c) { return transpose(ct, inverse(c.node.attrs.integers("permutation"))); });
  def.batch = batch_of_one([](Value x, const BatchContext& c) {
    return transpose(x, prepended(0, shifted(c.node.attrs.integers("permutation"))));
  });
  def.samples = [](Rng& rng, DType dtype) {
    const auto sample = [&](DType d, const Shape& shape, const std::vector<std::int64_t>& permutation) {
      return Sample{{random_array(rng, d, shape)}, {{"permutation", permutation}}, {}};
    };
    return std::vector<Sample>{sample(dtype, {}, {}), sample(dtype, {3, 5}, {1, 0}),
                               sample(dtype, {2, 1, 7}, {2, 0, 1}), sample(dtype, {2, 3, 5}, {1, 2, 0}),
                               sample(DType::I32, {2, 3}, {1, 0})};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
