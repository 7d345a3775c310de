#include <cmath>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value sin(Value x) { return ir::append_op("sin", {x}); }
Value cos(Value x) { return ir::append_op("cos", {x}); }

namespace ir {

std::vector<OpDef> ops_trig() {
  OpDef sin_def = unary_op("sin", "sine of x radians", ScalarOp::Sin, Accepts::Floats, 20);
  sin_def.eval = eval_math([](double x) { return std::sin(x); });
  sin_def.jvp = scaled_tangent([](const JvpContext& c) { return cos(c.primals[0]); });

  OpDef cos_def = unary_op("cos", "cosine of x radians", ScalarOp::Cos, Accepts::Floats, 20);
  cos_def.eval = eval_math([](double x) { return std::cos(x); });
  cos_def.jvp = scaled_tangent([](const JvpContext& c) { return neg(sin(c.primals[0])); });
  return {sin_def, cos_def};
}

}  // namespace ir
}  // namespace hotloop
