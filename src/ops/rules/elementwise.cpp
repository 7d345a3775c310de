#include "ops/rules/elementwise.h"

#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/sampling.h"

namespace hotloop::ir {
namespace {

bool accepted(Accepts accepts, DType d) {
  switch (accepts) {
    case Accepts::Floats: return is_float(d);
    case Accepts::Numbers: return d != DType::Bool;
    case Accepts::Integers: return is_integer(d);
    case Accepts::Integral: return !is_float(d);
    case Accepts::Any: break;
  }
  return true;
}

void check_operands(const InferContext& c, Accepts accepts) {
  const std::string where(c.op_name);
  for (const ValueType& t : c.operands) {
    if (t.dtype != c.operands[0].dtype)
      throw UserError(where, "both operands must have one dtype", types_text(c.operands), "cast() one of them");
    if (t.shape != c.operands[0].shape)
      throw UserError(where, "operands of the primitive must have one shape", types_text(c.operands), "broadcast_to()");
  }
  if (accepted(accepts, c.operands[0].dtype)) return;
  if (accepts == Accepts::Floats)
    throw UserError(where, "operands must be f32 or f64", types_text(c.operands), "cast(x, DType::F32)");
  if (accepts == Accepts::Numbers)
    throw UserError(where, "operands must be numbers", types_text(c.operands), "cast(x, DType::F32), or select()");
  if (accepts == Accepts::Integers)
    throw UserError(where, "operands must be integers", types_text(c.operands), "cast(x, DType::I32)");
  throw UserError(where, "operands must be integers or bool", types_text(c.operands), "cast(x, DType::I32)");
}

OpDef elementwise(const std::string& name, const std::string& summary, ScalarOp scalar, Accepts accepts, double cost,
                  int num_operands) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.kind = OpKind::Elementwise;
  def.scalar = scalar;
  def.num_operands = num_operands;
  def.cost_per_element = cost;
  def.infer = [accepts](const InferContext& c) {
    check_operands(c, accepts);
    return std::vector<ValueType>{c.operands[0]};
  };
  def.axes = axes_elementwise;
  def.batch = batch_elementwise;
  def.samples = [num_operands, accepts](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (DType d : {dtype, DType::I32, DType::U32, DType::I64, DType::Bool}) {
      if (!accepted(accepts, d)) continue;
      // Small integers, negative where there are any: products and powers stay exact.
      for (Sample& s : uniform_samples(rng, d, num_operands,
                                       is_float(d)       ? -2
                                       : d == DType::U32 ? 0
                                                         : -9,
                                       is_float(d) ? 2 : 9))
        samples.push_back(std::move(s));
    }
    return samples;
  };
  return def;
}

}  // namespace

OpDef unary_op(const std::string& name, const std::string& summary, ScalarOp scalar, Accepts accepts, double cost) {
  return elementwise(name, summary, scalar, accepts, cost, 1);
}

OpDef binary_op(const std::string& name, const std::string& summary, ScalarOp scalar, Accepts accepts, double cost) {
  return elementwise(name, summary, scalar, accepts, cost, 2);
}

OpDef compare_op(const std::string& name, const std::string& summary, ScalarOp scalar) {
  OpDef def = elementwise(name, summary, scalar, Accepts::Any, 1, 2);
  def.infer = [](const InferContext& c) {
    check_operands(c, Accepts::Any);
    return std::vector<ValueType>{{DType::Bool, c.operands[0].shape}};
  };
  return def;
}

Value append_binary(std::string_view name, Value a, Value b) {
  const Value both[] = {a, b};
  require_defined(name, both);
  if (a.dtype() != b.dtype())
    throw UserError(std::string(name), "both operands must have one dtype", types_text(both), "cast() one of them");
  const std::vector<Value> operands = broadcast_together(name, both);
  return append_op(name, operands);
}

}  // namespace hotloop::ir
