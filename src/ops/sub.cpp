#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"

namespace hotloop {

Value sub(Value a, Value b) { return ir::append_binary("sub", a, b); }

namespace ir {

std::vector<OpDef> ops_sub() {
  OpDef def = binary_op("sub", "a - b; integers wrap", ScalarOp::Sub, Accepts::Numbers);
  def.eval = eval_elementwise([]<class T>(T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x - y; }); });
  def.jvp = [](const JvpContext& c) {
    const Value ta = c.tangents[0], tb = c.tangents[1];
    return std::vector<Value>{!tb.defined() ? ta : !ta.defined() ? neg(tb) : sub(ta, tb)};
  };
  def.transpose = [](const TransposeContext& c) {
    const Value ct = c.cotangents[0];
    return std::vector<Value>{c.operands[0].defined() ? Value{} : ct,
                              c.operands[1].defined() || !ct.defined() ? Value{} : neg(ct)};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
