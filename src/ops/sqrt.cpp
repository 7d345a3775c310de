#include <cmath>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value sqrt(Value x) { return ir::append_op("sqrt", {x}); }

namespace ir {

std::vector<OpDef> ops_sqrt() {
  OpDef def = unary_op("sqrt", "square root; NaN below 0; the derivative at 0 is infinite", ScalarOp::Sqrt,
                       Accepts::Floats, 10);
  def.eval = eval_math([](double x) { return std::sqrt(x); });
  def.jvp = [](const JvpContext& c) {
    return std::vector<Value>{c.tangents[0].defined() ? div(c.tangents[0] * 0.5, c.outputs[0]) : Value{}};
  };
  def.samples = [](Rng& rng, DType dtype) { return uniform_samples(rng, dtype, 1, 0.3, 3); };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
