#include <cmath>
#include <numbers>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/gaussian.h"

namespace hotloop {

Value erfc(Value x) { return ir::append_op("erfc", {x}); }

namespace ir {

std::vector<OpDef> ops_erfc() {
  OpDef def = unary_op("erfc", "1 - erf(x), with all digits where x is large", ScalarOp::Erfc, Accepts::Floats, 40);
  def.eval = eval_math([](double x) { return std::erfc(x); });
  def.jvp = scaled_tangent(
      [](const JvpContext& c) { return exp_of_minus_square(c.primals[0]) * (-2 * std::numbers::inv_sqrtpi); });
  return {def};
}

}  // namespace ir
}  // namespace hotloop
