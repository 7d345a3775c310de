#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"

namespace hotloop {

Value neg(Value x) { return ir::append_op("neg", {x}); }

namespace ir {

std::vector<OpDef> ops_neg() {
  OpDef def = unary_op("neg", "-x; integers wrap", ScalarOp::Neg, Accepts::Numbers);
  def.eval = eval_elementwise([]<class T>(T x) {
    if constexpr (std::is_integral_v<T>)
      return wrapping(T{0}, x, [](auto a, auto b) { return a - b; });
    else
      return -x;
  });
  def.jvp = [](const JvpContext& c) {
    return std::vector<Value>{c.tangents[0].defined() ? neg(c.tangents[0]) : Value{}};
  };
  def.transpose = [](const TransposeContext& c) {
    return std::vector<Value>{c.cotangents[0].defined() ? neg(c.cotangents[0]) : Value{}};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
