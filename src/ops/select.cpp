#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value select(Value condition, Value a, Value b) {
  const Value all[] = {condition, a, b};
  const std::vector<Value> operands = ir::broadcast_together("select", all);
  return ir::append_op("select", operands);
}

namespace ir {
namespace {

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType &condition = c.operands[0], &a = c.operands[1], &b = c.operands[2];
  if (condition.dtype != DType::Bool)
    throw UserError("select", "the condition must be bool", types_text(c.operands), "compare, as in greater(x, y)");
  if (a.dtype != b.dtype)
    throw UserError("select", "both alternatives must have one dtype", types_text(c.operands), "cast() one of them");
  if (a.shape != b.shape || a.shape != condition.shape)
    throw UserError("select", "operands of the primitive must have one shape", types_text(c.operands),
                    "broadcast_to()");
  return {a};
}

std::vector<Array> eval(const EvalContext& c) {
  Array out(c.operands[1].dtype(), c.operands[1].shape());
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const auto* condition = static_cast<const std::uint8_t*>(c.operands[0].raw());
    const auto* a = static_cast<const T*>(c.operands[1].raw());
    const auto* b = static_cast<const T*>(c.operands[2].raw());
    for (std::int64_t i = 0; i < out.size(); ++i) static_cast<T*>(out.raw())[i] = condition[i] ? a[i] : b[i];
  });
  return {out};
}

std::vector<Value> jvp(const JvpContext& c) {
  const Value ta = c.tangents[1], tb = c.tangents[2];
  if (!ta.defined() && !tb.defined()) return {{}};
  const ValueType& type = c.primals[1].type();
  return {select(c.primals[0], or_zeros(ta, type), or_zeros(tb, type))};
}

std::vector<Value> transpose(const TransposeContext& c) {
  const Value condition = c.operands[0], ct = c.cotangents[0];
  HOTLOOP_CHECK(condition.defined(), "select is not linear in its condition");
  if (!ct.defined()) return {{}, {}, {}};
  const Value zero = zeros_of(ct.type());
  return {{},
          c.operands[1].defined() ? Value{} : select(condition, ct, zero),
          c.operands[2].defined() ? Value{} : select(condition, zero, ct)};
}

}  // namespace

std::vector<OpDef> ops_select() {
  OpDef def;
  def.name = "select";
  def.summary = "condition ? a : b for each element; the alternative not taken has no influence, not even as NaN";
  def.scalar = ScalarOp::Select;
  def.num_operands = 3;
  def.infer = infer;
  def.eval = eval;
  def.axes = axes_elementwise;
  def.jvp = jvp;
  def.transpose = ir::transpose;
  def.batch = batch_elementwise;
  def.samples = [](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (const Shape& shape : sample_shapes())
      samples.push_back(
          {{random_array(rng, DType::Bool, shape), random_array(rng, dtype, shape), random_array(rng, dtype, shape)},
           {},
           {}});
    samples.push_back(
        {{random_array(rng, DType::Bool, {4}), random_array(rng, DType::I32, {4}), random_array(rng, DType::I32, {4})},
         {},
         {}});
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
