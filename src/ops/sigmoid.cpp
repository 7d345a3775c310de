#include <cmath>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value sigmoid(Value x) { return ir::append_op("sigmoid", {x}); }

namespace ir {

std::vector<OpDef> ops_sigmoid() {
  OpDef def = unary_op("sigmoid", "logistic function 1 / (1 + exp(-x))", ScalarOp::Sigmoid, Accepts::Floats, 20);
  def.eval = eval_math([](double x) { return 1 / (1 + std::exp(-x)); });
  // In terms of the output, so that a backward pass keeps the output alone.
  def.jvp = scaled_tangent([](const JvpContext& c) { return c.outputs[0] * (1.0 - c.outputs[0]); });
  return {def};
}

}  // namespace ir
}  // namespace hotloop
