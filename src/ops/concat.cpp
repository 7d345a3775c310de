#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {

Value concat(std::span<const Value> parts, int axis) {
  if (parts.empty()) throw UserError("concat", "there must be at least one part", "none");
  ir::require_defined("concat", parts);
  const std::int64_t a = ir::checked_axis("concat", axis, parts[0].type());
  if (parts.size() == 1) return parts[0];
  return ir::append_op("concat", {parts.begin(), parts.end()}, {{"axis", a}});
}

namespace ir {
namespace {

std::vector<ValueType> infer(const InferContext& c) {
  HOTLOOP_CHECK(!c.operands.empty(), "concat has operands");
  const int axis = static_cast<int>(checked_axis("concat", c.attrs.integer("axis"), c.operands[0]));
  ValueType out = c.operands[0];
  out.shape[axis] = 0;
  for (const ValueType& t : c.operands) {
    bool fits = t.dtype == out.dtype && t.shape.rank() == out.shape.rank();
    for (int i = 0; fits && i < t.shape.rank(); ++i) fits = i == axis || t.shape[i] == out.shape[i];
    if (!fits)
      throw UserError("concat", "parts must have one dtype and agree on every axis but " + std::to_string(axis),
                      types_text(c.operands), "cast(), reshape() or expand_dims() a part");
    out.shape[axis] += t.shape[axis];
  }
  return {out};
}

std::vector<Array> eval(const EvalContext& c) {
  const auto axis = static_cast<std::size_t>(c.node.attrs.integer("axis"));
  Array out(c.node.types[0].dtype, c.node.types[0].shape);
  const auto strides = strides_of(out.shape());
  const std::size_t width = size_of(out.dtype());
  std::int64_t offset = 0;
  for (const Array& part : c.operands) {
    const auto* from = static_cast<const std::byte*>(part.raw());
    for_each_index(part.shape(), [&](const Index& index) {
      const std::int64_t flat = flat_index(index, strides) + offset * strides[axis];
      std::memcpy(static_cast<std::byte*>(out.raw()) + static_cast<std::size_t>(flat) * width, from, width);
      from += width;
    });
    offset += part.shape()[static_cast<int>(axis)];
  }
  return {out};
}

std::vector<Value> jvp(const JvpContext& c) {
  std::vector<Value> parts;
  bool any = false;
  for (std::size_t i = 0; i < c.tangents.size(); ++i) {
    any |= c.tangents[i].defined();
    parts.push_back(c.tangents[i]);
  }
  if (!any) return {{}};
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = or_zeros(parts[i], c.primals[i].type());
  return {concat(parts, static_cast<int>(c.node.attrs.integer("axis")))};
}

std::vector<Value> transpose_rule(const TransposeContext& c) {
  const Value ct = c.cotangents[0];
  const int axis = static_cast<int>(c.node.attrs.integer("axis"));
  std::vector<Value> result;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    const std::int64_t extent = c.node.operands[i].shape()[axis];
    result.push_back(ct.defined() && !c.operands[i].defined() ? narrow(ct, axis, offset, extent) : Value{});
    offset += extent;
  }
  return result;
}

}  // namespace

std::vector<OpDef> ops_concat() {
  OpDef def = movement_op("concat", "parts one after the other along an axis", OpKind::Concat, -1);
  def.infer = infer;
  def.eval = eval;
  def.axes = [](const Node& node) {
    std::vector<AxisLink> links = axes_elementwise(node);
    for (AxisLink& link : links)
      if (link.axis == node.attrs.integer("axis")) link.use = AxisUse::Mixed;
    return links;
  };
  def.jvp = jvp;
  def.transpose = transpose_rule;
  def.batch = [](const BatchContext& c) {
    return std::vector<Batched>{{concat(all_with_batch(c), static_cast<int>(c.node.attrs.integer("axis")) + 1), true}};
  };
  def.samples = [](Rng& rng, DType dtype) {
    const auto sample = [&](const std::vector<Shape>& shapes, std::int64_t axis, DType d) {
      Sample s{{}, {{"axis", axis}}, {}};
      for (const Shape& shape : shapes) s.operands.push_back(random_array(rng, d, shape));
      return s;
    };
    return std::vector<Sample>{sample({{3}, {1}}, 0, dtype), sample({{3, 5}, {3, 2}, {3, 1}}, 1, dtype),
                               sample({{1, 2, 3}, {4, 2, 3}}, 0, dtype), sample({{2}, {3}}, 0, DType::I32)};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
