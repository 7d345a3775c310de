#include "core/convert.h"
#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value constant(const Array& array) {
  if (!array.defined()) throw UserError("constant", "the array must hold values", "an empty Array{}");
  return ir::append_op("constant", {}, {{"value", array}});
}

Value constant(double value, DType dtype, const Shape& shape) {
  // One literal, repeated: large constants cost no memory, and folding sees the number.
  return broadcast_to(constant(Array::full(dtype, Shape{}, value)), shape);
}

Value like(Value x, double value) {
  ir::require_defined("like", {&x, 1});
  const DType dtype = x.dtype();
  // 2^63 alone is not told by the way back, to the nearest double.
  const bool is_there = is_float(dtype) || (value < 0x1p63 && visit_dtype(dtype, [value]<class T>(T) {
                                              return static_cast<double>(converted<T>(value)) == value;
                                            }));
  if (!is_there)
    throw UserError("like", "a number beside a value must be one of its dtype, " + std::string(name_of(dtype)),
                    print_number(value) + " beside " + x.type().str(), "cast(x, DType::F32) first");
  return constant(value, dtype);
}

namespace ir {

std::vector<OpDef> ops_constant() {
  OpDef def;
  def.name = "constant";
  def.summary = "a literal array";
  def.kind = OpKind::Constant;
  def.num_operands = 0;
  def.cost_per_element = 0;
  def.infer = [](const InferContext& c) { return std::vector<ValueType>{c.attrs.get<Array>("value").type()}; };
  def.eval = [](const EvalContext& c) { return std::vector<Array>{c.node.attrs.get<Array>("value")}; };
  def.extents = "value";
  def.samples = [](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (const Shape& shape : sample_shapes())
      samples.push_back({{}, {{"value", random_array(rng, dtype, shape)}}, {}});
    samples.push_back({{}, {{"value", random_array(rng, DType::Bool, {3})}}, {}});
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
