#include <cmath>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value tanh(Value x) { return ir::append_op("tanh", {x}); }

namespace ir {

std::vector<OpDef> ops_tanh() {
  OpDef def = unary_op("tanh", "hyperbolic tangent", ScalarOp::Tanh, Accepts::Floats, 20);
  def.eval = eval_math([](double x) { return std::tanh(x); });
  // In terms of the output, so that a backward pass keeps the output alone.
  def.jvp = scaled_tangent([](const JvpContext& c) { return 1.0 - c.outputs[0] * c.outputs[0]; });
  return {def};
}

}  // namespace ir
}  // namespace hotloop
