#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"

namespace hotloop {

Value stop_gradient(Value x) { return ir::append_op("stop_gradient", {x}); }

namespace ir {

std::vector<OpDef> ops_stop_gradient() {
  OpDef def = unary_op("stop_gradient", "x, with zero derivative", ScalarOp::Copy, Accepts::Any);
  def.kind = OpKind::StopGradient;
  def.cost_per_element = 0;
  def.eval = [](const EvalContext& c) { return std::vector<Array>{c.operands[0]}; };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
