#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value sign(Value x) { return ir::append_op("sign", {x}); }

namespace ir {

std::vector<OpDef> ops_sign() {
  OpDef def = unary_op("sign", "-1, 0 or 1; NaN for NaN", ScalarOp::Sign, Accepts::Numbers);
  def.eval = eval_elementwise([]<class T>(T x) { return x > T{0} ? T{1} : x < T{0} ? static_cast<T>(-1) : x; });
  def.samples = signed_samples;
  return {def};
}

}  // namespace ir
}  // namespace hotloop
