#include <cmath>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value abs(Value x) { return ir::append_op("abs", {x}); }

namespace ir {

std::vector<OpDef> ops_abs() {
  OpDef def = unary_op("abs", "|x|; the derivative at 0 is 0; integers wrap", ScalarOp::Abs, Accepts::Numbers);
  def.eval = eval_elementwise([]<class T>(T x) {
    if constexpr (std::is_floating_point_v<T>)
      return std::fabs(x);
    else
      return x < T{0} ? wrapping(T{0}, x, [](auto a, auto b) { return a - b; }) : x;
  });
  def.jvp = scaled_tangent([](const JvpContext& c) { return sign(c.primals[0]); });
  def.samples = signed_samples;
  return {def};
}

}  // namespace ir
}  // namespace hotloop
