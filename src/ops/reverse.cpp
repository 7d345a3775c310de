#include <algorithm>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {

Value reverse(Value x, const std::vector<std::int64_t>& axes) {
  ir::require_defined("reverse", {&x, 1});
  const auto checked = ir::checked_axes("reverse", axes, x.type());
  return checked.empty() ? x : ir::append_op("reverse", {x}, {{"axes", checked}});
}

namespace ir {

std::vector<OpDef> ops_reverse() {
  OpDef def = movement_op("reverse", "x with the order of elements turned round along axes", OpKind::Reverse);
  def.infer = [](const InferContext& c) {
    checked_axes("reverse", c.attrs.integers("axes"), c.operands[0]);
    return std::vector<ValueType>{c.operands[0]};
  };
  def.eval = [](const EvalContext& c) {
    const auto& axes = c.node.attrs.integers("axes");
    const Shape& shape = c.operands[0].shape();
    const auto strides = strides_of(shape);
    return std::vector<Array>{rearranged(c.operands[0], shape, [&](Index index) {
      for (std::int64_t axis : axes) {
        std::int64_t& i = index[static_cast<std::size_t>(axis)];
        i = shape[static_cast<int>(axis)] - 1 - i;
      }
      return flat_index(index, strides);
    })};
  };
  def.axes = [](const Node& node) {
    std::vector<AxisLink> links = axes_elementwise(node);
    for (const std::int64_t axis : node.attrs.integers("axes"))
      links[static_cast<std::size_t>(axis)].use = AxisUse::Reordered;
    return links;
  };
  def.transpose =
      transpose_of_one([](Value ct, const TransposeContext& c) { return reverse(ct, c.node.attrs.integers("axes")); });
  def.batch =
      batch_of_one([](Value x, const BatchContext& c) { return reverse(x, shifted(c.node.attrs.integers("axes"))); });
  def.samples = [](Rng& rng, DType dtype) {
    const auto sample = [&](DType d, const Shape& shape, const std::vector<std::int64_t>& axes) {
      return Sample{{random_array(rng, d, shape)}, {{"axes", axes}}, {}};
    };
    return std::vector<Sample>{sample(dtype, {1}, {0}), sample(dtype, {7}, {0}), sample(dtype, {3, 5}, {0}),
                               sample(dtype, {2, 3, 5}, {0, 2}), sample(DType::I32, {4}, {0})};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
