#include <cmath>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value exp(Value x) { return ir::append_op("exp", {x}); }
Value expm1(Value x) { return ir::append_op("expm1", {x}); }

namespace ir {

std::vector<OpDef> ops_exp() {
  OpDef exp_def = unary_op("exp", "e to the power x", ScalarOp::Exp, Accepts::Floats, 20);
  exp_def.eval = eval_math([](double x) { return std::exp(x); });
  exp_def.jvp = scaled_tangent([](const JvpContext& c) { return c.outputs[0]; });

  OpDef expm1_def = unary_op("expm1", "exp(x) - 1, accurate near 0", ScalarOp::Expm1, Accepts::Floats, 25);
  expm1_def.eval = eval_math([](double x) { return std::expm1(x); });
  expm1_def.jvp = scaled_tangent([](const JvpContext& c) { return c.outputs[0] + 1.0; });
  return {exp_def, expm1_def};
}

}  // namespace ir
}  // namespace hotloop
