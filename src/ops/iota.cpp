#include "core/convert.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/walk.h"

namespace hotloop {

Value iota(DType dtype, const Shape& shape, int axis) {
  const std::int64_t a = ir::checked_axis("iota", axis, {dtype, shape});
  return ir::append_op("iota", {}, {{"dtype", dtype}, {"shape", shape.vec()}, {"axis", a}});
}

namespace ir {

std::vector<OpDef> ops_iota() {
  OpDef def;
  def.name = "iota";
  def.summary = "each element's index along one axis";
  def.kind = OpKind::Iota;
  def.num_operands = 0;
  def.cost_per_element = 0;
  def.infer = [](const InferContext& c) {
    const ValueType type{c.attrs.get<DType>("dtype"), Shape(c.attrs.integers("shape"))};
    if (type.dtype == DType::Bool)
      throw UserError("iota", "the dtype must be a number's", type.str(), "iota(DType::I32, ...)");
    const auto axis = static_cast<int>(checked_axis("iota", c.attrs.integer("axis"), type));
    if (type.shape[axis] > 0 && !holds(type.dtype, type.shape[axis] - 1))
      throw UserError("iota", "the dtype must hold the last index",
                      "axis " + std::to_string(axis) + " of " + type.str(), "DType::I64");
    return std::vector<ValueType>{type};
  };
  def.eval = [](const EvalContext& c) {
    const ValueType& type = c.node.types[0];
    const auto axis = static_cast<std::size_t>(c.node.attrs.integer("axis"));
    Array out(type.dtype, type.shape);
    std::int64_t i = 0;
    for_each_index(type.shape, [&](const Index& index) { out.set(i++, static_cast<double>(index[axis])); });
    return std::vector<Array>{out};
  };
  def.extents = "shape";
  def.samples = [](Rng&, DType dtype) {
    std::vector<Sample> samples;
    for (DType d : {dtype, DType::I32, DType::I64}) {
      samples.push_back({{}, {{"dtype", d}, {"shape", std::vector<std::int64_t>{7}}, {"axis", std::int64_t{0}}}, {}});
      samples.push_back(
          {{}, {{"dtype", d}, {"shape", std::vector<std::int64_t>{3, 1, 5}}, {"axis", std::int64_t{2}}}, {}});
      samples.push_back(
          {{}, {{"dtype", d}, {"shape", std::vector<std::int64_t>{3, 5}}, {"axis", std::int64_t{0}}}, {}});
    }
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
