#include <cmath>
#include <numbers>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"

namespace hotloop {

Value erf(Value x) { return ir::append_op("erf", {x}); }

namespace ir {

std::vector<OpDef> ops_erf() {
  OpDef def = unary_op("erf", "error function 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x", ScalarOp::Erf,
                       Accepts::Floats, 25);
  def.eval = eval_math([](double x) { return std::erf(x); });
  def.jvp = scaled_tangent(
      [](const JvpContext& c) { return exp(neg(c.primals[0] * c.primals[0])) * (2 * std::numbers::inv_sqrtpi); });
  return {def};
}

}  // namespace ir
}  // namespace hotloop
