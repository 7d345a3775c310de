#include "core/reshape_groups.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value reshape(Value x, const Shape& shape) {
  ir::require_defined("reshape", {&x, 1});
  return x.shape() == shape ? x : ir::append_op("reshape", {x}, {{"shape", shape.vec()}});
}

namespace ir {
namespace {

std::vector<AxisLink> axes(const Node& node) {
  const Shape &in = node.operands[0].shape(), &out = node.types[0].shape;
  std::vector<AxisLink> links;
  for (const ReshapeGroup& g : reshape_groups(in, out))
    for (const int from : g.in)
      for (const int to : g.out)
        links.push_back({0, from, to, g.in.size() + g.out.size() == 2 ? AxisUse::Same : AxisUse::Mixed});
  for (const auto& [from, to] : matched_ones(in, out)) links.push_back({0, from, to});
  if (in.size() == 0)  // which is in no group
    for (int i = 0; i < in.rank() && i < out.rank() && in[i] == out[i]; ++i) links.push_back({0, i, i});
  return links;
}

}  // namespace

std::vector<OpDef> ops_reshape() {
  OpDef def = movement_op("reshape", "the same elements in row-major order under another shape", OpKind::Reshape);
  def.infer = [](const InferContext& c) {
    const Shape shape(c.attrs.integers("shape"));
    if (shape.size() != c.operands[0].shape.size())
      throw UserError("reshape", "the number of elements must stay",
                      c.operands[0].str() + " (" + std::to_string(c.operands[0].shape.size()) + " elements) to " +
                          shape.str() + " (" + std::to_string(shape.size()) + ")");
    return std::vector<ValueType>{{c.operands[0].dtype, shape}};
  };
  def.eval = [](const EvalContext& c) { return std::vector<Array>{c.operands[0].reshaped(c.node.types[0].shape)}; };
  def.axes = axes;
  def.extents = "shape";
  def.transpose =
      transpose_of_one([](Value ct, const TransposeContext& c) { return reshape(ct, c.node.operands[0].shape()); });
  def.batch = batch_of_one(
      [](Value x, const BatchContext& c) { return reshape(x, c.node.types[0].shape.with_inserted(0, c.size)); });
  def.samples = [](Rng& rng, DType dtype) {
    const auto sample = [&](DType d, const Shape& from, const Shape& to) {
      return Sample{{random_array(rng, d, from)}, {{"shape", to.vec()}}, {}};
    };
    return std::vector<Sample>{sample(dtype, {}, {1, 1}),     sample(dtype, {1}, {}),
                               sample(dtype, {3, 5}, {15}),   sample(dtype, {15}, {5, 1, 3}),
                               sample(dtype, {2, 9}, {6, 3}), sample(DType::I32, {4}, {2, 2})};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
