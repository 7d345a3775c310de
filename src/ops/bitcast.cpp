#include <cstring>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value bitcast(Value x, DType dtype) {
  ir::require_defined("bitcast", {&x, 1});
  return x.dtype() == dtype ? x : ir::append_op("bitcast", {x}, {{"dtype", dtype}});
}

namespace ir {
namespace {

std::vector<Array> eval(const EvalContext& c) {
  const Array& x = c.operands[0];
  Array out(c.node.types[0].dtype, x.shape());
  std::memcpy(out.raw(), x.raw(), static_cast<std::size_t>(x.size()) * size_of(x.dtype()));
  return {out};
}

}  // namespace

std::vector<OpDef> ops_bitcast() {
  OpDef def = movement_op("bitcast", "the bits of x read as another dtype of as many; of a NaN any that are a NaN's",
                          OpKind::Elementwise);
  def.scalar = ScalarOp::Bitcast;
  def.infer = [](const InferContext& c) {
    const DType from = c.operands[0].dtype, to = c.attrs.get<DType>("dtype");
    if (from == DType::Bool || to == DType::Bool || size_of(from) != size_of(to))
      throw UserError("bitcast", "both dtypes must be numbers of one size",
                      c.operands[0].str() + " to " + std::string(name_of(to)),
                      "cast() for the number itself in another dtype");
    return std::vector<ValueType>{{to, c.operands[0].shape}};
  };
  def.eval = eval;
  def.axes = axes_elementwise;
  def.jvp = nullptr;  // a step at every number
  def.batch = batch_elementwise;
  def.samples = [](Rng& rng, DType dtype) {
    const DType bits = dtype == DType::F32 ? DType::I32 : DType::I64;
    const double one = dtype == DType::F32 ? 0x3f800000 : 0x3ff0000000000000;
    std::vector<Sample> samples;
    for (const Shape& shape : sample_shapes()) {
      samples.push_back({{random_array(rng, dtype, shape)}, {{"dtype", bits}}, {}});
      samples.push_back({{random_array(rng, bits, shape, one * 0.98, one)}, {{"dtype", dtype}}, {}});
    }
    samples.push_back({{random_array(rng, DType::I32, {7}, -9, 9)}, {{"dtype", DType::U32}}, {}});
    samples.push_back({{random_array(rng, DType::U32, {7}, 0, 4e9)}, {{"dtype", DType::I32}}, {}});
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
