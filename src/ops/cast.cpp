#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value cast(Value x, DType dtype) {
  ir::require_defined("cast", {&x, 1});
  return x.dtype() == dtype ? x : ir::append_op("cast", {x}, {{"dtype", dtype}});
}

namespace ir {
namespace {

std::vector<Array> eval(const EvalContext& c) { return {c.operands[0].cast(c.node.attrs.get<DType>("dtype"))}; }

}  // namespace

std::vector<OpDef> ops_cast() {
  OpDef def =
      movement_op("cast", "x as another dtype; float to integer truncates (saturating, NaN to 0), to bool is x != 0",
                  OpKind::Elementwise);
  def.scalar = ScalarOp::Cast;
  def.cost_per_element = 1;
  def.infer = [](const InferContext& c) {
    return std::vector<ValueType>{{c.attrs.get<DType>("dtype"), c.operands[0].shape}};
  };
  def.eval = eval;
  def.axes = axes_elementwise;
  def.jvp = [](const JvpContext& c) {
    const bool linear = c.tangents[0].defined() && is_float(c.node.types[0].dtype);
    return std::vector<Value>{linear ? cast(c.tangents[0], c.node.types[0].dtype) : Value{}};
  };
  def.transpose =
      transpose_of_one([](Value ct, const TransposeContext& c) { return cast(ct, c.node.operands[0].dtype()); });
  def.batch = batch_elementwise;
  def.samples = [](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (DType to : {DType::F32, DType::F64, DType::I32, DType::U32, DType::I64, DType::Bool})
      for (const Shape& shape : {Shape{}, Shape{3, 5}})
        samples.push_back({{random_array(rng, dtype, shape, to == DType::U32 ? 0 : -9, 9)}, {{"dtype", to}}, {}});
    for (DType from : {DType::I32, DType::U32, DType::I64, DType::Bool})
      samples.push_back({{random_array(rng, from, {7}, 0, 9)}, {{"dtype", dtype}}, {}});
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
