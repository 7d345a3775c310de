#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value extent(Value x, int axis) {
  ir::require_defined("extent", {&x, 1});
  return ir::append_op("extent", {x}, {{"axis", ir::checked_axis("extent", axis, x.type())}});
}

namespace ir {

std::vector<OpDef> ops_extent() {
  OpDef def;
  def.name = "extent";
  def.summary = "number of elements along an axis, as a float: known at run time only if the axis is the batch axis";
  def.kind = OpKind::Extent;
  def.num_operands = 1;
  def.cost_per_element = 0;
  def.infer = [](const InferContext& c) {
    checked_axis("extent", c.attrs.integer("axis"), c.operands[0]);
    return std::vector<ValueType>{{c.operands[0].dtype == DType::F64 ? DType::F64 : DType::F32, {}}};
  };
  def.eval = [](const EvalContext& c) {
    const std::int64_t n = c.operands[0].shape()[static_cast<int>(c.node.attrs.integer("axis"))];
    return std::vector<Array>{Array::full(c.node.types[0].dtype, {}, static_cast<double>(n))};
  };
  def.axes = [](const Node&) { return std::vector<AxisLink>{}; };  // no element is read
  // Every lane has the same extent.
  def.batch = [](const BatchContext& c) {
    return std::vector<Batched>{
        {extent(c.operands[0].value, static_cast<int>(c.node.attrs.integer("axis")) + 1), false}};
  };
  def.samples = [](Rng& rng, DType dtype) {
    return std::vector<Sample>{{{random_array(rng, dtype, {7})}, {{"axis", std::int64_t{0}}}, {}},
                               {{random_array(rng, dtype, {3, 5})}, {{"axis", std::int64_t{1}}}, {}},
                               {{random_array(rng, DType::I32, {3, 1})}, {{"axis", std::int64_t{1}}}, {}}};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
